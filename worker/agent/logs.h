/* What one rank prints: kept in a file, shipped to gemsd piece by piece.
 *
 * The agent reads the rank's pipe, so that a rank cannot fill the disk: beyond
 * the limit only the end is kept (for the report of its exit). Pieces carry
 * offsets and may be sent twice.
 */
#ifndef GEMS_WORKER_AGENT_LOGS_H
#define GEMS_WORKER_AGENT_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;

enum { LOG_TAIL_BYTES = 4096, LOG_PIECE_BYTES = 64 << 10 };

struct rank_log {
    char path[512];
    int pipe_fd, file_fd;  /* -1: closed */
    uint64_t bytes, limit; /* in the file; limit: most of it */
    uint64_t shipped;      /* known to gemsd */
    uint64_t dropped;
    char tail[LOG_TAIL_BYTES]; /* a ring */
    uint64_t tail_bytes;       /* written to it so far */
};

/* Makes the state folder this agent's own, and removes what an earlier one left:
 * nobody can ask for it. ret_fd holds the folder while it is open. */
int logs_prepare(const char *state_dir, int *ret_fd, struct gems_error *err);

/* Takes pipe_fd (non-blocking). */
int logs_open(struct rank_log *log, const char *state_dir, const char *name, int pipe_fd,
              uint64_t limit, struct gems_error *err);
/* Reads the pipe until it is empty; false: it has ended and is closed. */
bool logs_read(struct rank_log *log);
/* The next piece to ship: bytes, 0: none. */
size_t logs_piece(const struct rank_log *log, uint8_t *piece, size_t room);
/* The last lines, printable, with NUL. */
void logs_tail(const struct rank_log *log, char ret_text[LOG_TAIL_BYTES + 1]);
/* Closes; removes the file. */
void logs_close(struct rank_log *log);

#endif
