/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/tls.h"

#ifdef TACIT_HAVE_OPENSSL
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"

static const char *const role[] = {"server", "client"};

static tacit_status tls_fail(tacit_error *err, tacit_status status, const char *what)
{
    char reason[200] = "unknown reason";
    unsigned long code = ERR_peek_last_error();
    if (code)
        ERR_error_string_n(code, reason, sizeof reason);
    ERR_clear_error();
    return error_set(err, status, "%s: %s", what, reason);
}

static tacit_status load_certificates(SSL_CTX *ctx, unsigned party, const char *folder,
                                      tacit_error *err)
{
    char ca[4200], own[4200], key[4200];
    snprintf(ca, sizeof ca, "%s/ca.pem", folder);
    snprintf(own, sizeof own, "%s/%s.pem", folder, role[party]);
    snprintf(key, sizeof key, "%s/%s.key", folder, role[party]);
    if (SSL_CTX_load_verify_locations(ctx, ca, NULL) != 1)
        return tls_fail(err, TACIT_ERR_IO, ca);
    if (SSL_CTX_use_certificate_file(ctx, own, SSL_FILETYPE_PEM) != 1)
        return tls_fail(err, TACIT_ERR_IO, own);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1)
        return tls_fail(err, TACIT_ERR_IO, key);
    return TACIT_OK;
}

static tacit_status handshake(channel *c, unsigned party, tacit_error *err)
{
    uint64_t deadline = clock_ns() + (uint64_t)c->timeout_ms * 1000000;
    for (;;) {
        int n = party == SEC_SERVER ? SSL_accept(c->tls) : SSL_connect(c->tls);
        if (n == 1)
            break;
        int why = SSL_get_error(c->tls, n);
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
            long verify = SSL_get_verify_result(c->tls);
            if (verify != X509_V_OK)
                return error_set(err, TACIT_ERR_SECURITY,
                                 "the other party's certificate is refused: %s",
                                 X509_verify_cert_error_string(verify));
            return tls_fail(err, TACIT_ERR_SECURITY, "the TLS handshake failed");
        }
        struct pollfd p = {c->fd, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, 0};
        if (clock_ns() >= deadline)
            return error_set(err, TACIT_ERR_PEER, "the TLS handshake took more than %d ms",
                             c->timeout_ms);
        poll(&p, 1, 100);
    }
    return TACIT_OK;
}

/* The peer must be the other role, not just anybody the authority knows. */
static tacit_status check_role(channel *c, unsigned party, tacit_error *err)
{
    char name[64] = "";
    X509 *peer = SSL_get1_peer_certificate(c->tls);
    if (peer)
        X509_NAME_get_text_by_NID(X509_get_subject_name(peer), NID_commonName, name, sizeof name);
    X509_free(peer);
    char want[64];
    snprintf(want, sizeof want, "tacit %s", role[1 - party]);
    if (!peer || strcmp(name, want) != 0)
        return error_set(err, TACIT_ERR_SECURITY, "the other party's certificate is not a %s's",
                         role[1 - party]);
    return TACIT_OK;
}

/* ---- the socket under it: as OpenSSL's own, but a peer that is gone is an error, not a signal
 * ---- */

static int socket_write(BIO *bio, const char *data, int size)
{
    int fd = (int)(intptr_t)BIO_get_data(bio);
    ssize_t n = send(fd, data, (size_t)size, MSG_NOSIGNAL);
    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)n;
}

static int socket_read(BIO *bio, char *data, int size)
{
    int fd = (int)(intptr_t)BIO_get_data(bio);
    ssize_t n = recv(fd, data, (size_t)size, 0);
    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)n;
}

static long socket_control(BIO *bio, int what, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return what == BIO_CTRL_FLUSH; /* nothing is held back */
}

static bool set_socket(channel *c)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "tacit socket");
    c->method = method;
    if (!method || BIO_meth_set_write(method, socket_write) != 1 ||
        BIO_meth_set_read(method, socket_read) != 1 ||
        BIO_meth_set_ctrl(method, socket_control) != 1)
        return false;
    BIO *bio = BIO_new(method);
    if (!bio)
        return false;
    BIO_set_data(bio, (void *)(intptr_t)c->fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(c->tls, bio, bio);
    return true;
}

tacit_status tls_start(channel *c, unsigned party, const char *folder, tacit_error *err)
{
    SSL_CTX *ctx = SSL_CTX_new(party == SEC_SERVER ? TLS_server_method() : TLS_client_method());
    c->context = ctx;
    if (!ctx)
        return tls_fail(err, TACIT_ERR_INTERNAL, "TLS");
    SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    /* the keys themselves are of 128 bits; many records to a system call */
    if (SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                                      "TLS_CHACHA20_POLY1305_SHA256") != 1)
        return tls_fail(err, TACIT_ERR_INTERNAL, "TLS");
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, 1 << 18);
    SSL_CTX_set_num_tickets(ctx, 0);
    TRY(load_certificates(ctx, party, folder, err));
    c->tls = SSL_new(ctx);
    if (!c->tls || !set_socket(c))
        return tls_fail(err, TACIT_ERR_INTERNAL, "TLS");
    TRY(handshake(c, party, err));
    return check_role(c, party, err);
}

ssize_t tls_move(channel *c, bool sending, void *data, size_t size)
{
    size_t most = (size_t)1 << 24, done = 0;
    size = size < most ? size : most;
    if (!size)
        return 0;
    ERR_clear_error();
    int ok =
        sending ? SSL_write_ex(c->tls, data, size, &done) : SSL_read_ex(c->tls, data, size, &done);
    if (ok == 1)
        return (ssize_t)done;
    int why = SSL_get_error(c->tls, ok);
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

void tls_bye(channel *c)
{
    if (c->tls)
        SSL_shutdown(c->tls);
}

void tls_end(channel *c)
{
    SSL_free(c->tls);
    SSL_CTX_free(c->context);
    BIO_meth_free(c->method);
    c->tls = c->context = c->method = NULL;
}

/* ---- certificates for tests and closed groups ---- */

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = e && X509_add_ext(x, e, -1) == 1;
    X509_EXTENSION_free(e);
    return ok;
}

static X509 *certificate(const char *name, EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key,
                         int days, long serial)
{
    X509 *x = X509_new();
    if (!x)
        return NULL;
    bool ca = !issuer;
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
    X509_gmtime_adj(X509_getm_notBefore(x), days > 0 ? -60 : -86400 * 2);
    X509_gmtime_adj(X509_getm_notAfter(x), days > 0 ? 86400L * days : -86400);
    X509_set_pubkey(x, key);
    X509_NAME *subject = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(issuer ? issuer : x));
    bool ok = add_extension(x, issuer ? issuer : x, NID_basic_constraints,
                            ca ? "critical,CA:TRUE" : "critical,CA:FALSE") &&
              add_extension(x, issuer ? issuer : x, NID_key_usage,
                            ca ? "critical,keyCertSign" : "critical,digitalSignature") &&
              X509_sign(x, issuer_key ? issuer_key : key, EVP_sha256()) > 0;
    if (ok)
        return x;
    X509_free(x);
    return NULL;
}

static bool write_pem(const char *folder, const char *name, X509 *x, EVP_PKEY *key)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, x ? "pem" : "key");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, x ? 0644 : 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool ok = f && (x ? PEM_write_X509(f, x) == 1
                      : PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1);
    if (f)
        ok = fclose(f) == 0 && ok;
    return ok;
}

tacit_status channel_make_certificates(const char *folder, int days, tacit_error *err)
{
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return error_set(err, TACIT_ERR_IO, "cannot make the folder '%s': %s", folder,
                         strerror(errno));
    EVP_PKEY *ca_key = EVP_EC_gen("P-256");
    X509 *ca =
        ca_key ? certificate("tacit authority", ca_key, NULL, NULL, days > 0 ? days : 1, 1) : NULL;
    bool ok = ca && write_pem(folder, "ca", ca, NULL);
    for (int i = 0; i < 2 && ok; i++) {
        char name[64];
        snprintf(name, sizeof name, "tacit %s", role[i]);
        EVP_PKEY *key = EVP_EC_gen("P-256");
        X509 *x = key ? certificate(name, key, ca, ca_key, days, 2 + i) : NULL;
        ok = x && write_pem(folder, role[i], x, NULL) && write_pem(folder, role[i], NULL, key);
        X509_free(x);
        EVP_PKEY_free(key);
    }
    X509_free(ca);
    EVP_PKEY_free(ca_key);
    return ok ? TACIT_OK : tls_fail(err, TACIT_ERR_IO, "making certificates");
}

#else

tacit_status tls_start(channel *c, unsigned party, const char *folder, tacit_error *err)
{
    (void)c, (void)party, (void)folder;
    return error_set(err, TACIT_ERR_UNSUPPORTED,
                     "this build has no OpenSSL: the line between the parties cannot be secured");
}
ssize_t tls_move(channel *c, bool sending, void *data, size_t size)
{
    (void)c, (void)sending, (void)data, (void)size;
    return -1;
}
void tls_bye(channel *c)
{
    (void)c;
}
void tls_end(channel *c)
{
    c->tls = c->context = NULL;
}
tacit_status channel_make_certificates(const char *folder, int days, tacit_error *err)
{
    (void)folder, (void)days;
    return error_set(err, TACIT_ERR_UNSUPPORTED, "this build has no OpenSSL to make certificates");
}

#endif
