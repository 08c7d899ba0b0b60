/* HELLO: each side proves to each other that it knows the attempt's secret.
 *
 *   A -> B  NONCE: A's nonce, hash over it, job, attempt, ranks, version
 *   B -> A  NONCE: the same for B
 *   A -> B  PROOF: hash over both nonces       B -> A  PROOF: the same for B
 *
 * The hash of NONCE keeps out whoever does not know the secret; that of PROOF,
 * whoever repeats an old NONCE. Both nonces and the direction give the cookie
 * that every later header carries, so a message may overtake the proof. What
 * does not fit is dropped and counted and changes nothing: a stray process must
 * not end a job. An honest peer of another UCX is told from a stray by its
 * hash and ends connect() with a text.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "worker/net/ucx_internal.h"

static const uint64_t hello_magic = UINT64_C(0x31304f4c4c454847); /* "GHELLO01" */

enum { MAX_EARLY = 4096 };

/* All that a hash of an attempt covers beside the secret; no padding. */
struct hashed {
    char what[16];
    uint64_t job;
    uint32_t attempt, n_ranks, from, to;
    char version[UCX_VERSION_BYTES];
    uint8_t nonce_from[UCX_NONCE_BYTES], nonce_to[UCX_NONCE_BYTES];
};

static int keyed_hash(const struct net *net, const char *what, uint32_t from, uint32_t to,
                      const char *version, const uint8_t *nonce_from, const uint8_t *nonce_to,
                      uint8_t ret_mac[UCX_MAC_BYTES])
{
    struct hashed hashed = { .job = net->config.job,
                             .attempt = net->config.attempt,
                             .n_ranks = net->config.n_ranks,
                             .from = from,
                             .to = to };

    strncpy(hashed.what, what, sizeof hashed.what - 1);
    memcpy(hashed.version, version, sizeof hashed.version);
    memcpy(hashed.nonce_from, nonce_from, sizeof hashed.nonce_from);
    if (nonce_to) {
        memcpy(hashed.nonce_to, nonce_to, sizeof hashed.nonce_to);
    }
    return hash_hmac_sha256(net->config.secret, sizeof net->config.secret, &hashed, sizeof hashed,
                            ret_mac, NULL);
}

static bool is_hash_right(const struct net *net, const struct ucx_hello *hello)
{
    uint8_t mac[UCX_MAC_BYTES];
    bool is_proof = hello->kind == UCX_HELLO_PROOF;

    return keyed_hash(net, is_proof ? "proof" : "nonce", hello->from, hello->to, hello->version,
                      hello->nonce, is_proof ? net->nonce : NULL, mac) == 0 &&
           hash_equal(mac, hello->mac, sizeof mac);
}

/* ---- sending ---- */

static void on_hello_sent(void *request, ucs_status_t status, void *arg)
{
    if (status != UCS_OK) {
        ucx_peer_fail(arg, status);
    }
    ucp_request_free(request);
}

static void hello_send(struct ucx_peer *peer, struct ucx_hello *hello, enum ucx_hello_kind kind)
{
    struct net *net = peer->net;
    bool is_proof = kind == UCX_HELLO_PROOF;
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb = { .send = on_hello_sent },
        .user_data = peer,
    };
    ucs_status_ptr_t request;

    *hello = (struct ucx_hello){ .magic = hello_magic,
                                 .kind = kind,
                                 .job = net->config.job,
                                 .attempt = net->config.attempt,
                                 .n_ranks = net->config.n_ranks,
                                 .from = net->config.rank,
                                 .to = peer->rank };
    strncpy(hello->version, net_ucx.version(), sizeof hello->version - 1);
    memcpy(hello->nonce, net->nonce, sizeof hello->nonce);
    if (keyed_hash(net, is_proof ? "proof" : "nonce", hello->from, hello->to, hello->version,
                   hello->nonce, is_proof ? peer->nonce : NULL, hello->mac) < 0) {
        ucx_note(net, peer->rank, "keyed hash failed");
        ucx_peer_fail(peer, UCS_ERR_IO_ERROR);
        return;
    }
    request = ucp_am_send_nbx(peer->ep, UCX_AM_HELLO, hello, sizeof *hello, NULL, 0, &param);
    if (UCS_PTR_IS_ERR(request)) {
        ucx_peer_fail(peer, UCS_PTR_STATUS(request));
    }
}

/* ---- receiving ---- */

static int cookie_of(const struct net *net, uint32_t from, uint32_t to, const uint8_t *nonce_from,
                     const uint8_t *nonce_to, uint64_t *ret_cookie)
{
    static const char no_version[UCX_VERSION_BYTES];
    uint8_t mac[UCX_MAC_BYTES];
    int status = keyed_hash(net, "cookie", from, to, no_version, nonce_from, nonce_to, mac);

    memcpy(ret_cookie, mac, sizeof *ret_cookie);
    return status;
}

static bool take_nonce(struct ucx_peer *peer, const struct ucx_hello *hello)
{
    struct net *net = peer->net;
    uint32_t own = net->config.rank;

    if (strncmp(hello->version, net_ucx.version(), sizeof hello->version) != 0) {
        ucx_note(net, peer->rank, "has %.31s, this rank has %s", hello->version, net_ucx.version());
        ucx_peer_fail(peer, UCS_ERR_UNSUPPORTED);
        return true;
    }
    if (peer->has_nonce ||
        cookie_of(net, peer->rank, own, hello->nonce, net->nonce, &peer->cookie_in) < 0 ||
        cookie_of(net, own, peer->rank, net->nonce, hello->nonce, &peer->cookie_out) < 0) {
        return false;
    }
    memcpy(peer->nonce, hello->nonce, sizeof peer->nonce);
    peer->has_nonce = true;
    hello_send(peer, &peer->proof, UCX_HELLO_PROOF);
    return true;
}

static bool take_proof(struct ucx_peer *peer, const struct ucx_hello *hello)
{
    struct net *net = peer->net;

    /* It may overtake its NONCE, and says as much. */
    if ((!peer->has_nonce && !take_nonce(peer, hello)) || peer->is_proven || peer->is_failing ||
        !hash_equal(peer->nonce, hello->nonce, sizeof peer->nonce)) {
        return false;
    }
    peer->is_proven = true;
    if (--net->n_unproven == 0) {
        ucx_connect_end(net, 0);
    }
    return true;
}

/* false: dropped. */
static bool take_hello(struct net *net, const struct ucx_hello *hello)
{
    struct ucx_peer *peer;

    if (hello->from >= net->config.n_ranks || hello->from == net->config.rank ||
        hello->to != net->config.rank || hello->job != net->config.job ||
        hello->attempt != net->config.attempt || hello->n_ranks != net->config.n_ranks ||
        net->peers[hello->from].is_failed || net->n_unproven == 0 || !is_hash_right(net, hello)) {
        return false;
    }
    peer = &net->peers[hello->from];
    return hello->kind == UCX_HELLO_PROOF ? take_proof(peer, hello) : take_nonce(peer, hello);
}

static bool keep_early(struct net *net, const struct ucx_hello *hello)
{
    struct ucx_hello *early;

    if (net->n_early >= MAX_EARLY) {
        return false;
    }
    early = realloc(net->early, (net->n_early + 1) * sizeof *early);
    if (!early) {
        return false;
    }
    net->early = early;
    net->early[net->n_early++] = *hello;
    return true;
}

ucs_status_t ucx_on_hello(void *arg, const void *header, size_t header_bytes, void *data,
                          size_t bytes, const ucp_am_recv_param_t *param)
{
    struct net *net = arg;
    struct ucx_hello hello;
    bool is_taken = false;

    (void)data;
    (void)param;
    if (header_bytes == sizeof hello && bytes == 0 && !net->is_closing) {
        memcpy(&hello, header, sizeof hello);
        if (hello.magic == hello_magic) {
            is_taken = net->peers ? take_hello(net, &hello) : keep_early(net, &hello);
        }
    }
    net->counters.dropped += !is_taken;
    return UCS_OK;
}

int ucx_hello_start(struct net *net, struct gems_error *err)
{
    int status = hash_random(net->nonce, sizeof net->nonce, err);

    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; i < net->config.n_ranks; i++) {
        if (i != net->config.rank && !net->peers[i].is_failing) {
            hello_send(&net->peers[i], &net->peers[i].hello, UCX_HELLO_NONCE);
        }
    }
    for (uint32_t i = 0; i < net->n_early; i++) {
        net->counters.dropped += !take_hello(net, &net->early[i]);
    }
    free(net->early);
    net->early = NULL;
    net->n_early = 0;
    return 0;
}
