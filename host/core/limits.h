/* SPDX-License-Identifier: Apache-2.0 */
/* Every size, count and depth that a client or a plugin controls. Sources: the HTTP contract and the reference manager. */
#ifndef CORE_LIMITS_H
#define CORE_LIMITS_H

#define LIMIT_KIB ((size_t)1024)
#define LIMIT_MIB (1024 * LIMIT_KIB)

#define LIMIT_COMMAND_BODY (256 * LIMIT_KIB)
#define LIMIT_JSON_ESCAPE 6 /* bytes that JSON may need for one: any character as \u00e9 */
/* A create as JSON, however it is written: the command and all else that it may hold, some 24 KiB. */
#define LIMIT_CREATE_BODY (LIMIT_JSON_ESCAPE * (LIMIT_COMMAND_BODY + 32 * LIMIT_KIB))
#define LIMIT_JSON_BODY (64 * LIMIT_KIB)
#define LIMIT_INLINE_FILE (16 * LIMIT_MIB)
#define LIMIT_URI 8000
#define LIMIT_HEADERS (16 * LIMIT_KIB)
#define LIMIT_LABEL 255          /* session_id, workflow_id, idempotency key */
#define LIMIT_ARTIFACT_PATHS 256
#define LIMIT_ERROR_TEXT 1024
#define LIMIT_ENV_BYTES (1 * LIMIT_MIB)
#define LIMIT_ENV_PAIRS 4096
#define LIMIT_WAIT_MS 60000
#define LIMIT_PAGE 1000          /* rows of one list answer */
#define LIMIT_PAGE_DEFAULT 100
#define LIMIT_REQUEST_ARENA (64 * LIMIT_MIB)
#define LIMIT_ROW (1 * LIMIT_MIB)        /* bytes of one stored row */
#define LIMIT_INLINE_OBJECT (32 * LIMIT_KIB) /* outputs up to this are objects inside the state database */
#define LIMIT_STREAM_WINDOW (256 * LIMIT_KIB) /* bytes in flight of one file transfer */
#define LIMIT_CALL_ARENA (64 * LIMIT_MIB)     /* what one provider call may emit */

#endif
