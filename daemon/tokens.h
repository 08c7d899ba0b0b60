/* Tokens of peers that come over TCP: a file with one line each,
 *
 *     SHA-256 of the token, in hex   ROLE   NAME
 *
 * The token itself is shown once, when it is made, and stored nowhere. ROLE is
 * user, viewer, operator or worker. Blocking, small file.
 */
#ifndef GEMS_DAEMON_TOKENS_H
#define GEMS_DAEMON_TOKENS_H

struct gems_error;

enum token_role { TOKEN_USER, TOKEN_VIEWER, TOKEN_OPERATOR, TOKEN_WORKER, TOKEN_ROLE_COUNT };
enum { TOKEN_BYTES = 65, TOKEN_NAME_BYTES = 64 };

int token_role_from_name(const char *name); /* negative if unknown */

/* Makes a token (64 hex digits and NUL) and appends its line. */
int tokens_add(const char *path, const char *name, enum token_role role,
               char ret_token[TOKEN_BYTES], struct gems_error *err);
/* GEMS_E_DENIED if the token is not in the file. Takes as long whether the
 * token is there or not. */
int tokens_find(const char *path, const char *token, enum token_role *ret_role,
                char ret_name[TOKEN_NAME_BYTES], struct gems_error *err);

#endif
