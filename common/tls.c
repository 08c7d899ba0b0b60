#include "common/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>

#include "common/error.h"

static bool is_given(const char *path)
{
    return path && path[0];
}

static int fail(struct gems_error *err, const char *file, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;

    gems_error_set(err, GEMS_E_INVALID, "tls: %s '%s': %s", what, file ? file : "",
                   reason ? reason : "cannot be used");
    ERR_clear_error();
    return GEMS_E_INVALID;
}

static int load_own(SSL_CTX *ctx, const struct tls_settings *settings, struct gems_error *err)
{
    if (SSL_CTX_use_certificate_chain_file(ctx, settings->certificate) != 1) {
        return fail(err, settings->certificate, "certificate");
    }
    if (SSL_CTX_use_PrivateKey_file(ctx, settings->key, SSL_FILETYPE_PEM) != 1) {
        return fail(err, settings->key, "key");
    }
    if (SSL_CTX_check_private_key(ctx) != 1) {
        return fail(err, settings->key, "key does not belong to the certificate");
    }
    return GEMS_OK;
}

static SSL_CTX *create(const SSL_METHOD *method, struct gems_error *err)
{
    SSL_CTX *ctx = SSL_CTX_new(method);

    if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1) {
        fail(err, NULL, "TLS 1.3");
        SSL_CTX_free(ctx);
        return NULL;
    }
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    return ctx;
}

SSL_CTX *tls_server_create(const struct tls_settings *settings, struct gems_error *err)
{
    SSL_CTX *ctx;

    if (!is_given(settings->certificate) || !is_given(settings->key)) {
        gems_error_set(err, GEMS_E_INVALID, "tls: a TCP listener needs a certificate and a key");
        gems_error_hint(err, "give both files, or listen on the unix socket only");
        return NULL;
    }
    ctx = create(TLS_server_method(), err);
    if (!ctx) {
        return NULL;
    }
    /* No resumption: a session would outlive the certificate it was made with. */
    SSL_CTX_set_num_tickets(ctx, 0);
    if (load_own(ctx, settings, err) < 0) {
        goto out;
    }
    if (is_given(settings->ca)) {
        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(settings->ca);

        if (!names || SSL_CTX_load_verify_file(ctx, settings->ca) != 1) {
            sk_X509_NAME_pop_free(names, X509_NAME_free);
            fail(err, settings->ca, "certificates of the authority");
            goto out;
        }
        SSL_CTX_set_client_CA_list(ctx, names);
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    }
    return ctx;
out:
    SSL_CTX_free(ctx);
    return NULL;
}

SSL_CTX *tls_client_create(const struct tls_settings *settings, struct gems_error *err)
{
    SSL_CTX *ctx;

    if (!is_given(settings->ca)) {
        gems_error_set(err, GEMS_E_INVALID, "tls: no certificate of an authority is given");
        gems_error_hint(err, "name the file that the server's certificate can be checked with");
        return NULL;
    }
    if (is_given(settings->certificate) != is_given(settings->key)) {
        gems_error_set(err, GEMS_E_INVALID, "tls: certificate and key belong together");
        return NULL;
    }
    ctx = create(TLS_client_method(), err);
    if (!ctx) {
        return NULL;
    }
    if (SSL_CTX_load_verify_file(ctx, settings->ca) != 1) {
        fail(err, settings->ca, "certificates of the authority");
        goto out;
    }
    if (is_given(settings->certificate) && load_own(ctx, settings, err) < 0) {
        goto out;
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return ctx;
out:
    SSL_CTX_free(ctx);
    return NULL;
}

void tls_destroy(SSL_CTX *ctx)
{
    SSL_CTX_free(ctx);
}
