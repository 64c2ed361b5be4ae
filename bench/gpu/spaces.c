/* SPDX-License-Identifier: Apache-2.0
 * Two network namespaces with an emulated line between them: each has an interface of its own (a
 * TUN device), and a process passes the packets of one to the other when the line would have. The
 * parties' TCP runs over it as over any network. Needs the rights of an administrator. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "bench.h"

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

typedef struct packet {
    struct packet *next;
    uint64_t due;
    size_t size;
    uint8_t data[PACKET];
} packet;
typedef struct way {
    int from, to;
    uint64_t busy; /* until when the line is taken */
    packet *first, *last;
} way;

static void take_in(way *w, double rate, uint64_t delay)
{
    for (;;) {
        packet *p = malloc(sizeof *p);
        ssize_t n = p ? read(w->from, p->data, PACKET) : -1;
        if (n <= 0) {
            free(p);
            return;
        }
        uint64_t now = clock_ns();
        w->busy = now > w->busy ? now : w->busy;
        w->busy += rate > 0 ? (uint64_t)((double)n / rate * 1e9) : 0;
        p->due = w->busy + delay;
        p->size = (size_t)n;
        p->next = NULL;
        if (w->last)
            w->last->next = p;
        else
            w->first = p;
        w->last = p;
    }
}

/* When the next packet is due; UINT64_MAX: none. */
static uint64_t give_out(way *w)
{
    while (w->first && w->first->due <= clock_ns()) {
        packet *p = w->first;
        if (write(w->to, p->data, p->size) < 0 && (errno == EAGAIN || errno == EINTR))
            return clock_ns() + 20000;
        w->first = p->next;
        if (!w->first)
            w->last = NULL;
        free(p);
    }
    return w->first ? w->first->due : UINT64_MAX;
}

static void pass(const int tun[2], const net *line)
{
    way ways[2] = {{.from = tun[0], .to = tun[1]}, {.from = tun[1], .to = tun[0]}};
    for (;;) {
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            uint64_t due = give_out(&ways[i]);
            next = due < next ? due : next;
        }
        uint64_t now = clock_ns(), wait = next == UINT64_MAX ? 100000000
                                          : next > now       ? next - now
                                                             : 0;
        struct timespec t = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
        struct pollfd p[2] = {{.fd = tun[0], .events = POLLIN}, {.fd = tun[1], .events = POLLIN}};
        if (ppoll(p, 2, &t, NULL) < 0 && errno != EINTR)
            return;
        for (int i = 0; i < 2; i++)
            take_in(&ways[i], line->rate, (uint64_t)(line->delay * 0.5e9));
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
    fflush(NULL);
    s->pid = ok ? fork() : -1;
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        prctl(PR_SET_TIMERSLACK, 1000);
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
    if (s->pid > 0) {
        kill(s->pid, SIGTERM);
        waitpid(s->pid, NULL, 0);
    }
    for (int i = 0; i < 2; i++)
        if (s->space[i] >= 0)
            close(s->space[i]);
    *s = (spaces){.space = {-1, -1}};
}
