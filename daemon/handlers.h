/* Handlers of messages, by file. See server.c for the table. */
#ifndef GEMS_DAEMON_HANDLERS_H
#define GEMS_DAEMON_HANDLERS_H

#include "daemon/server.h"

/* submit.c */
handler_fn on_submit, on_plan;
/* verbs.c */
handler_fn on_cancel, on_pause, on_resume, on_checkpoint;
/* status.c, catalogue.c */
handler_fn on_status, on_list, on_events, on_nodes, on_checkpoints;
/* watch.c, logs.c, fetch.c */
handler_fn on_watch, on_logs, on_rank_log, on_fetch, on_restore;
/* nodes.c */
handler_fn on_drain, on_register, on_ping;
/* launch.c */
handler_fn on_join;
/* report.c */
handler_fn on_heartbeat, on_progress, on_end, on_rank_exit;
/* sessions.c */
handler_fn on_shard, on_shard_end;

#endif
