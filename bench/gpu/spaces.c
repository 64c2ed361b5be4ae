/* SPDX-License-Identifier: Apache-2.0
 * Two network namespaces with an emulated line between them: each has an interface of its own (a
 * TUN device), and a process passes the packets of one to the other when the line would have. The
 * parties' TCP runs over it as over any network. Needs the rights of an administrator. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "line.h"

enum { PACKET = 9000 };

static bool set(int s, struct ifreq *r, unsigned long what, const char *address)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    if (address) {
        inet_pton(AF_INET, address, &a.sin_addr);
        memcpy(&r->ifr_addr, &a, sizeof a);
    }
    return ioctl(s, what, r) == 0;
}

/* The interface of the namespace that the caller is in. */
static int interface_open(const char *address)
{
    struct ifreq tun = {.ifr_flags = IFF_TUN | IFF_NO_PI}, lo = {.ifr_flags = IFF_UP};
    strcpy(tun.ifr_name, "line");
    strcpy(lo.ifr_name, "lo");
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && s >= 0 && ioctl(fd, TUNSETIFF, &tun) == 0 &&
              set(s, &tun, SIOCSIFADDR, address) && set(s, &tun, SIOCSIFNETMASK, "255.255.255.0");
    tun.ifr_mtu = PACKET;
    ok = ok && set(s, &tun, SIOCSIFMTU, NULL);
    tun.ifr_qlen = 10000;
    ok = ok && set(s, &tun, SIOCSIFTXQLEN, NULL);
    tun.ifr_flags = IFF_UP | IFF_RUNNING;
    ok = ok && set(s, &tun, SIOCSIFFLAGS, NULL) && set(s, &lo, SIOCSIFFLAGS, NULL);
    if (s >= 0)
        close(s);
    if (!ok && fd >= 0)
        close(fd);
    return ok ? fd : -1;
}

static void pass(const int tun[2], const net *line)
{
    uint64_t busy[2] = {0};
    line_way ways[2] = {{.from = tun[0], .to = tun[1], .busy = &busy[0], .packets = true},
                        {.from = tun[1], .to = tun[0], .busy = &busy[1], .packets = true}};
    for (;;) {
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            uint64_t due = line_give(&ways[i]);
            next = due < next ? due : next;
        }
        struct pollfd p[2] = {{.fd = tun[0], .events = POLLIN}, {.fd = tun[1], .events = POLLIN}};
        if (!line_wait(p, 2, next))
            return;
        for (int i = 0; i < 2; i++)
            line_take(&ways[i], line);
    }
}

bool spaces_start(spaces *s, const net *line)
{
    static const char *const address[2] = {SPACES_SERVER, "10.77.0.2"};
    int tun[2] = {-1, -1};
    *s = (spaces){.space = {-1, -1}};
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    bool ok = home >= 0;
    for (int i = 0; i < 2 && ok; i++) {
        ok = unshare(CLONE_NEWNET) == 0;
        s->space[i] = ok ? open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
        tun[i] = ok ? interface_open(address[i]) : -1;
        ok = s->space[i] >= 0 && tun[i] >= 0;
    }
    if (home >= 0 && setns(home, CLONE_NEWNET) != 0)
        ok = false;
    if (home >= 0)
        close(home);
    s->pid = ok ? line_fork() : -1;
    if (s->pid == 0) {
        pass(tun, line);
        _exit(0);
    }
    for (int i = 0; i < 2; i++)
        if (tun[i] >= 0)
            close(tun[i]);
    if (s->pid <= 0)
        spaces_stop(s);
    return s->pid > 0;
}

bool spaces_enter(const spaces *s, int party)
{
    return s->pid <= 0 || setns(s->space[party], CLONE_NEWNET) == 0;
}

void spaces_stop(spaces *s)
{
    if (s->pid > 0)
        line_end(s->pid);
    for (int i = 0; i < 2; i++)
        if (s->space[i] >= 0)
            close(s->space[i]);
    *s = (spaces){.space = {-1, -1}};
}
