/* The real gems-worker, and a gemsd that is the test itself: it accepts, reads
 * frames with a deadline, and answers as the case wants. Pings are answered by
 * the way. All functions fail the test on error. */
#ifndef GEMS_TESTS_UNIT_AGENT_WORLD_H
#define GEMS_TESTS_UNIT_AGENT_WORLD_H

#include <sys/types.h>

#include "proto/gems.pb-c.h"
#include "proto/messages.h"

struct agent_world {
    char dir[64], socket[96], rank_program[96];
    int listen_fd, fd; /* fd: the connection, -1: none */
    pid_t agent;
    uint32_t last_call;
    const char *launch_data; /* of the next Launch; NULL: none */
    int launch_status;       /* of the last Launch that was refused */
};

struct agent_frame {
    enum msg_type type;
    uint16_t flags;
    uint32_t call;
    ProtobufCMessage *message; /* owned: frame_free */
};

/* A folder, a socket, a rank program with this shell text as body ($DIR is the
 * folder), and an agent with further options (ends with NULL; may be NULL). */
void agent_world_start(struct agent_world *world, const char *rank_script, char *const *options);
/* SIGTERM; the agent must end with 0. Removes the folder. */
void agent_world_stop(struct agent_world *world);
/* kill -9. */
void agent_world_kill_agent(struct agent_world *world);

/* Accepts the agent; answers Hello; gives its Register, not yet answered. */
struct agent_frame agent_world_accept(struct agent_world *world);
/* The same, answered with nothing to kill. */
void agent_world_register(struct agent_world *world);
void agent_world_disconnect(struct agent_world *world);

uint32_t agent_world_send(struct agent_world *world, enum msg_type type,
                          const ProtobufCMessage *message);
void agent_world_reply(struct agent_world *world, uint32_t call, enum msg_type type,
                       const ProtobufCMessage *message);
/* The next frame of the type; logs of ranks are acknowledged and kept in *log
 * (may be NULL) on the way; anything else fails. */
struct agent_frame agent_world_expect(struct agent_world *world, enum msg_type type, char *log,
                                      size_t log_room);
void frame_free(struct agent_frame *frame);

/* Launch of rank 0 on device cpu:0; its answer. */
enum msg_type agent_world_launch(struct agent_world *world, uint64_t job, uint32_t attempt,
                                 const char *device);
void agent_world_kill(struct agent_world *world, uint64_t job, uint32_t attempt, uint32_t grace_ms);
/* Waits for the file DIR/name to hold a line; returns its number. */
long agent_world_number(struct agent_world *world, const char *name);
/* The process is gone, or a zombie that nobody reaps; waits up to 3 s. */
void agent_world_wait_gone(pid_t pid);

#endif
