/* A rank's connection to gemsd, on the communication thread's event loop.
 *
 * gemsd may go away and come back: training goes on. While it is gone, step
 * reports are kept, the connection is tried again with growing pauses, and
 * the rank joins again as a running one. If gemsd then says that the attempt
 * is over, the process exits at once (CONTROL_EXIT_FENCED).
 *
 * The compute thread hands over step reports through a ring without lock or
 * allocation; everything else it asks for blocks it until the communication
 * thread has done it: such calls come between steps only, one at a time.
 */
#ifndef GEMS_WORKER_RANK_CONTROL_H
#define GEMS_WORKER_RANK_CONTROL_H

#include "proto/messages.h"
#include "proto/gems.pb-c.h"
#include "worker/rank/trainer.h"

struct control;

enum { CONTROL_EXIT_FENCED = 3, CONTROL_EXIT_COMMAND = 5 };

/* The link must be created, not yet started; it and info are borrowed. net:
 * what the link was made with, for its counters. */
int control_create(struct link *link, const struct net_ops *net, const Gems__LaunchInfo *info,
                   struct control **ret_control, struct gems_error *err);
/* Closes the connection. Before link_destroy, whose thread has to do it. */
void control_destroy(struct control *control);

/* What Join says beside the launch message. */
struct control_join {
    const uint8_t *address;
    size_t address_bytes;
    const char *net_version, *kind; /* borrowed for the life of the control */
};

/* Connects and joins; waits for the gang. The connection is tried for as long
 * as it takes. *ret_start is owned by the caller (msg_free). */
int control_join(struct control *control, const struct control_join *join, Gems__Start **ret_start,
                 struct gems_error *err);

/* From here on heartbeats carry what the trainer shows; watch NULL: no more. */
void control_watch(struct control *control, const struct trainer_watch *watch,
                   uint64_t allocated_bytes);
/* What the rank does while no trainer runs: "connecting". A literal. */
void control_phase(struct control *control, const char *phase);

/* A step report. Never blocks for long, allocates nothing. */
void control_step(struct control *control, const struct trainer_step *step);
/* What gemsd wants; each wish is told once. */
enum trainer_wish control_wish(struct control *control);

bool control_is_attached(struct control *control);
/* Blocks until gemsd is there. */
void control_wait_attached(struct control *control);

/* Frames that answer a call, on the communication thread. A negative return
 * ends the call with it. */
typedef int (*control_frame_fn)(void *arg, enum msg_type type, const ProtobufCMessage *message);

/* Sends a message and blocks until it is taken, which waits while gemsd does
 * not read. GEMS_E_PEER if the connection is gone or breaks. */
int control_send(struct control *control, enum msg_type type, const ProtobufCMessage *message,
                 struct gems_error *err);
/* As control_send, then waits for the whole answer: frames up to the last one
 * go to fn (NULL: they are dropped); an Error answer becomes this error. */
int control_call(struct control *control, enum msg_type type, const ProtobufCMessage *message,
                 control_frame_fn fn, void *arg, struct gems_error *err);

/* Waits until a checkpoint of that step or a later one is durable; GEMS_E_PEER
 * if the connection breaks before, GEMS_E_TIMEOUT after timeout_ms (0: never). */
int control_wait_ack(struct control *control, uint64_t step, unsigned timeout_ms,
                     struct gems_error *err);

#endif
