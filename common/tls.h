/* TLS settings and contexts. TLS 1.3 or newer only. */
#ifndef GEMS_COMMON_TLS_H
#define GEMS_COMMON_TLS_H

struct gems_error;
struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

/* Paths of PEM files; NULL or empty: not given. */
struct tls_settings {
    const char *ca;          /* whom to believe */
    const char *certificate; /* own chain, first the own one */
    const char *key;         /* own private key */
    const char *server_name; /* client side: expected name; default the host of the address */
};

/* Server: certificate and key are needed; with a ca, clients may show a
 * certificate, which must be good. Errors name the file. */
struct ssl_ctx_st *tls_server_create(const struct tls_settings *settings, struct gems_error *err);

/* Client: ca needed; certificate and key optional. */
struct ssl_ctx_st *tls_client_create(const struct tls_settings *settings, struct gems_error *err);

void tls_destroy(struct ssl_ctx_st *ctx);

#endif
