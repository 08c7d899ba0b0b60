/* Messages to structs and back: the one place where both are known.
 *
 * from_* check every limit and enum (GEMS_E_INVALID names the field) and leave
 * the result zeroed on failure. to_* allocate the message tree; free it with
 * msg_free (or protobuf-c's free_unpacked).
 */
#ifndef GEMS_PROTO_CODEC_H
#define GEMS_PROTO_CODEC_H

#include "plan/plan.h"
#include "proto/gems.pb-c.h"

struct gems_error;

int spec_from_proto(const Gems__JobSpec *message, struct job_spec *ret_spec, struct gems_error *err); /* and spec_check */
Gems__JobSpec *spec_to_proto(const struct job_spec *spec);

int graph_from_proto(const Gems__Graph *message, struct graph *ret_graph, struct gems_error *err); /* and graph_check */
Gems__Graph *graph_to_proto(const struct graph *graph);

int facts_from_proto(const Gems__FactSet *message, struct fact_set *ret_facts, struct gems_error *err);
Gems__FactSet *facts_to_proto(const struct fact_set *facts);

/* rank < 0: all ranks' lists; else only that one's are filled. */
int plan_from_proto(const Gems__Plan *message, struct plan *ret_plan, struct gems_error *err);
Gems__Plan *plan_to_proto(const struct plan *plan, int rank);

/* Packed bytes for the store and for pipes; owned by the caller (free). */
int proto_pack(const ProtobufCMessage *message, uint8_t **ret_bytes, size_t *ret_n, struct gems_error *err);

#endif
