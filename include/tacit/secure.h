/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit/secure.h: private inference between two parties.
 *
 * A server has a model, a client has inputs, a dealer hands both one-time keys and goes away.
 * Nobody shows anything: security is semi-honest, see docs/security-model.md.
 *
 *     tacit_secure_compile(model, &options, &secure, &err);         the server, once
 *     tacit_secure_strip(secure, "arch.tacit", &err);               what the others may know
 *     tacit_secure_load("arch.tacit", &secure, &err);               dealer and client
 *     tacit_secure_deal(secure, &deal, &err);                       two key files
 *     tacit_secure_serve(secure, &server, &report, &err);
 *     tacit_secure_query(secure, &client, inputs, outputs, &report, &err);
 */
#ifndef TACIT_SECURE_H
#define TACIT_SECURE_H

#include "tacit/tacit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tacit_secure tacit_secure;

typedef enum tacit_secure_weights {
    TACIT_WEIGHTS_OWNED,  /* only the server knows them */
    TACIT_WEIGHTS_PUBLIC, /* everybody knows them: cheapest */
    TACIT_WEIGHTS_SHARED, /* computed on as secrets of both parties */
} tacit_secure_weights;

/* Comparisons by trees open one message less, by digits they need a tenth of the key. */
typedef enum tacit_secure_compare {
    TACIT_COMPARE_AUTO, /* trees where they are short, few or follow each other */
    TACIT_COMPARE_TREES,
    TACIT_COMPARE_DIGITS,
    TACIT_COMPARE_DIRECT,
} tacit_secure_compare;

/* Zero means the default throughout. */
typedef struct tacit_secure_options {
    tacit_secure_weights weights;
    int dither; /* rescale by public dither instead of faithfully */
    tacit_secure_compare compare;
    int frac;     /* fraction bits of activations and weights; default 12 */
    double bound; /* largest |x| of float inputs; default 8 */
    const tacit_dim *dims;
    uint32_t n_dims;
    /* Sample inputs: ranges are taken from running them (times two) instead of being proven. The
     * keys carry the mark `calibrated`; every run checks the ranges, and where a value leaves them
     * both parties get TACIT_ERR_VALUE and nobody a result. */
    const tacit_tensor *calibration;
    uint32_t n_calibration;
} tacit_secure_options;

TACIT_API TACIT_MUST_USE tacit_status tacit_secure_compile(const tacit_model *model,
                                                           const tacit_secure_options *options,
                                                           tacit_secure **out, tacit_error *err);
/* The public description: the graph without its weights, their rounded sizes, the mode. */
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_strip(const tacit_secure *secure,
                                                         const char *path, tacit_error *err);
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_load(const char *path, tacit_secure **out,
                                                        tacit_error *err);
TACIT_API void tacit_secure_free(tacit_secure *secure);

TACIT_API uint32_t tacit_secure_input_count(const tacit_secure *secure);
TACIT_API uint32_t tacit_secure_output_count(const tacit_secure *secure);
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_input(const tacit_secure *secure, uint32_t index,
                                                         tacit_port *out);
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_output(const tacit_secure *secure,
                                                          uint32_t index, tacit_port *out);

typedef struct tacit_secure_costs {
    uint64_t key_bytes_server, key_bytes_client; /* of one run */
    uint64_t wire_bytes;                         /* both ways, one run */
    uint64_t weight_bytes;                       /* server to client, once per connection */
    uint32_t rounds, rounds_per_block;
    char mode[96];
    unsigned char hash[32];
} tacit_secure_costs;
TACIT_API void tacit_secure_cost(const tacit_secure *secure, tacit_secure_costs *out);
/* The plan as text or JSON; free it with tacit_text_free. */
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_plan(const tacit_secure *secure, int json,
                                                        char **out, tacit_error *err);

typedef struct tacit_secure_deal_options {
    uint32_t runs; /* default 1 */
    const char *server_key, *client_key;
    const char *server_secret, *client_secret; /* NULL: KEY.secret, made where absent */
    uint64_t insecure_seed; /* not 0: predictable keys for tests, marked as such */
    const char *device;     /* as in tacit_secure_peer */
} tacit_secure_deal_options;
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_deal(const tacit_secure *secure,
                                                        const tacit_secure_deal_options *options,
                                                        tacit_error *err);

typedef struct tacit_secure_peer {
    const char *key, *secret; /* secret NULL: KEY.secret */
    const char *address;      /* HOST:PORT to listen on or to connect to */
    const char *certificates; /* folder with ca.pem and this party's .pem and .key */
    int timeout_ms;           /* of any wait; default 30000 */
    int accept_predictable;   /* run with keys that were dealt predictably */
    const char *share;        /* this party's file of tacit_secure_share, with shared weights */
    /* "cpu", "cuda", "cuda:N" or "auto" (a GPU if there is one); NULL: TACIT_DEVICE, else "cpu".
     * Results and messages are the same; where a GPU is asked for and there is none, the report
     * says why the processor was used. */
    const char *device;
    uint64_t device_bytes; /* most memory to use there; 0: what is free */
    /* Keys that do not fit there are uploaded round by round during the query, from pinned memory
     * of at most so many bytes (0: half of what is free) or straight from the file. */
    uint64_t host_bytes;
    /* The client: so many inferences at once, which share rounds and weights; their tensors follow
     * one another in the arrays. The server: the most it allows; 0: 16. Both need a device. */
    uint32_t inferences;
} tacit_secure_peer;

typedef struct tacit_secure_report {
    uint32_t run, rounds;
    uint64_t sent, received, online_ns; /* online: from the first input byte to the result */
    uint64_t prepare_ns;                /* before that: weights, and the key onto the device */
    char device[128];                   /* what computed */
} tacit_secure_report;

/* Serves one query. */
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_serve(const tacit_secure *secure,
                                                         const tacit_secure_peer *peer,
                                                         tacit_secure_report *report,
                                                         tacit_error *err);
TACIT_API TACIT_MUST_USE tacit_status
tacit_secure_query(const tacit_secure *secure, const tacit_secure_peer *peer,
                   const tacit_tensor *inputs, uint32_t n_inputs, tacit_tensor *outputs,
                   uint32_t n_outputs, tacit_secure_report *report, tacit_error *err);
/* The cleartext twin, bit for bit what two parties compute. With dither: for the run of the keys
 * dealt from `insecure_seed`. */
TACIT_API TACIT_MUST_USE tacit_status
tacit_secure_simulate(const tacit_secure *secure, const tacit_tensor *inputs, uint32_t n_inputs,
                      tacit_tensor *outputs, uint32_t n_outputs, uint64_t insecure_seed,
                      uint32_t run, tacit_error *err);
/* Splits the weights of a model that was compiled with TACIT_WEIGHTS_SHARED into two files; neither
 * tells anything by itself. With them both parties run from the public description alone. */
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_share(const tacit_secure *secure,
                                                         const char *server_share,
                                                         const char *client_share,
                                                         tacit_error *err);
/* A test authority with certificates for both parties; days <= 0: expired ones. */
TACIT_API TACIT_MUST_USE tacit_status tacit_secure_certificates(const char *folder, int days,
                                                                tacit_error *err);

#ifdef __cplusplus
}
#endif
#endif
