/* Runs gems-inspect, which knows the back ends, as a child process.
 *
 * Protocol on its standard input and output: u32 length (little endian) and
 * one InspectRequest, the same with one InspectReply. Its complaints go to our
 * stderr. The client links no back end itself (ARCHITECTURE.md 5).
 */
#ifndef GEMS_CLIENT_INSPECT_H
#define GEMS_CLIENT_INSPECT_H

#include "proto/gems.pb-c.h"

struct gems_error;

/* Asks the gems-inspect beside our own program (a build tree) or in the folder
 * of the installation. An error inside the reply comes back as our status.
 * *ret_reply is owned by the caller (msg_free). */
int inspect_run(const Gems__InspectRequest *request, Gems__InspectReply **ret_reply,
                struct gems_error *err);

#endif
