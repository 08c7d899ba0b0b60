/* A look at packed bytes before protobuf-c sees them.
 *
 * protobuf-c trusts much: it merges repeated singular fields, keeps what it
 * does not know, and cuts a string at its first NUL. The scan walks the wire
 * format by the message's descriptor and refuses what gems never sends.
 */
#ifndef GEMS_PROTO_SCAN_H
#define GEMS_PROTO_SCAN_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

struct gems_error;

enum { SCAN_MAX_DEPTH = 8, SCAN_MAX_UNKNOWN = 256 };

/* GEMS_E_INVALID, naming message and field: a cut or malformed field, nesting
 * below SCAN_MAX_DEPTH, a singular field given twice, a string that is not
 * UTF-8 or holds a NUL, more than SCAN_MAX_UNKNOWN unknown fields. */
int scan_check(const ProtobufCMessageDescriptor *descriptor, const uint8_t *data, size_t n,
               struct gems_error *err);

/* For packed bytes of our own: puts '?' where a string is not UTF-8 (a file
 * name, a line of a log), so that the peer's scan_check accepts it. */
void scan_clean(const ProtobufCMessageDescriptor *descriptor, uint8_t *data, size_t n);

#endif
