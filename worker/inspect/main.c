/* gems-inspect: answers one question about a job and ends.
 *
 * Runs with what a user sent and with decoders of foreign files, so it limits
 * itself: address space, processor time, no core dump. Whatever goes wrong is
 * an Error inside the reply; the exit status is 0 if there is one. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fsutil.h"
#include "common/log.h"
#include "proto/codec.h"
#include "proto/messages.h"
#include "worker/inspect/inspect.h"

enum { EXIT_USAGE = 2, CPU_SECONDS = 60, MEASURE_CPU_SECONDS = 600 };
#define ADDRESS_SPACE_BYTES ((rlim_t)8 << 30)

static void limit(int resource, rlim_t value)
{
    struct rlimit limits;

    if (getrlimit(resource, &limits) == 0 && limits.rlim_max > value) {
        limits.rlim_cur = limits.rlim_max = value;
        /* Lowering a limit cannot fail; if it does, the work is the same. */
        (void)setrlimit(resource, &limits);
    }
}

/* Measuring takes the memory of real operators; a sanitizer maps terabytes. */
static void limit_self(bool is_measured)
{
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, is_measured ? MEASURE_CPU_SECONDS : CPU_SECONDS);
#ifndef __SANITIZE_ADDRESS__
    if (!is_measured) {
        limit(RLIMIT_AS, ADDRESS_SPACE_BYTES);
    }
#endif
}

static int read_all(int fd, void *data, size_t n, struct gems_error *err)
{
    size_t done = 0;

    while (done < n) {
        ssize_t got = read(fd, (char *)data + done, n - done);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return gems_error_errno(err, errno, "request");
        }
        if (got == 0) {
            return gems_error_set(err, GEMS_E_INVALID, "request: ends after %zu of %zu bytes", done,
                                  n);
        }
        done += (size_t)got;
    }
    return GEMS_OK;
}

static int read_request(ProtobufCMessage **ret_message, struct gems_error *err)
{
    uint8_t payload[INSPECT_MAX_REQUEST];
    struct rpc_frame frame = { .type = MSG_INSPECT, .payload = payload };
    uint32_t length;
    int st = read_all(STDIN_FILENO, &length, sizeof length, err);

    if (st < 0) {
        return st;
    }
    length = le32toh(length);
    if (length > sizeof payload) {
        return gems_error_set(err, GEMS_E_INVALID, "request: %u bytes, %zu are allowed", length,
                              sizeof payload);
    }
    frame.bytes = length;
    st = read_all(STDIN_FILENO, payload, length, err);
    return st < 0 ? st : msg_decode(&frame, ret_message, err);
}

/* Writes a reply, with facts or with an error. */
static int write_reply(const struct fact_set *facts, const char *kind, const struct gems_error *why)
{
    Gems__InspectReply reply = GEMS__INSPECT_REPLY__INIT;
    Gems__Error error = GEMS__ERROR__INIT;
    struct gems_error err = { 0 };
    uint8_t *bytes = NULL;
    uint32_t length;
    size_t n = 0;
    int st;

    if (facts) {
        reply.facts = facts_to_proto(facts);
        reply.kind = (char *)(uintptr_t)kind;
    } else {
        error.status = why->status;
        error.text = (char *)(uintptr_t)why->text;
        error.hint = (char *)(uintptr_t)why->hint;
        reply.error = &error;
    }
    st = facts && !reply.facts ? gems_error_set(&err, GEMS_E_NOMEM, "reply: no memory")
                               : proto_pack(&reply.base, &bytes, &n, &err);
    if (st == GEMS_OK) {
        length = htole32((uint32_t)n);
        st = fs_write_all(STDOUT_FILENO, &length, sizeof length);
        st = st < 0 ? st : fs_write_all(STDOUT_FILENO, bytes, n);
    }
    if (reply.facts) {
        msg_free(&reply.facts->base);
    }
    free(bytes);
    return st;
}

int main(int argc, char **argv)
{
    bool is_measured = argc == 2 && strcmp(argv[1], "--measure") == 0;
    ProtobufCMessage *request = NULL;
    struct gems_error err = { 0 };
    struct fact_set facts = { 0 };
    const char *kind = NULL;
    int st;

    if (argc > 2 || (argc == 2 && !is_measured)) {
        fprintf(stderr, "usage: gems-inspect [--measure] < request > reply\n");
        return EXIT_USAGE;
    }
    limit_self(is_measured);
    st = read_request(&request, &err);
    st = st < 0 ? st
                : inspect_request((const Gems__InspectRequest *)request, is_measured, &facts, &kind,
                                  &err);
    st = write_reply(st < 0 ? NULL : &facts, kind, &err);
    if (st < 0) {
        log_error("inspect: the reply cannot be written");
    }
    fact_set_fini(&facts);
    if (request) {
        msg_free(request);
    }
    return st < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
