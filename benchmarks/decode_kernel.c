/* The decoder's kernels once more, in C: what a C compiler makes of the same work, for benchmarks.decode.
 *
 * The same interface, tables and order of work as kraft_codec/kernels (framing, records, walk, typed), so that the one
 * can be put in the place of the other and their results compared: headers and CRC-32C of every batch; framing, envelope,
 * type and version of every record, its body checked by the schema's program; fields put into Arrow buffers.
 * Build: cc -O3 -msse4.2 -shared -fPIC.
 */
#include "decode_kernel_walk.h"
#include <nmmintrin.h>

/* ---- CRC-32C ---- */

INLINE uint64_t shifted(uint64_t crc, const uint32_t *t) {
    return t[crc & 255] ^ t[256 + ((crc >> 8) & 255)] ^ t[512 + ((crc >> 16) & 255)] ^ t[768 + ((crc >> 24) & 255)];
}

static uint64_t crc32c(bytes p, i64 size, const uint32_t *tables) {
    uint64_t crc = 0xFFFFFFFF, word;
    bytes end = p + size;
    for (; p + 3 * LANE <= end; p += 2 * LANE) {
        uint64_t second = 0, third = 0;
        for (bytes lane = p + LANE; p < lane; p += 8) {
            memcpy(&word, p, 8); crc = _mm_crc32_u64(crc, word);
            memcpy(&word, p + LANE, 8); second = _mm_crc32_u64(second, word);
            memcpy(&word, p + 2 * LANE, 8); third = _mm_crc32_u64(third, word);
        }
        crc = shifted(shifted(crc, tables) ^ second, tables) ^ third;
    }
    for (; p + 8 <= end; p += 8) { memcpy(&word, p, 8); crc = _mm_crc32_u64(crc, word); }
    for (; p < end; p++) crc = _mm_crc32_u8((uint32_t)crc, *p);
    return crc ^ 0xFFFFFFFF;
}

/* ---- batches ---- */

static int all_zero(bytes p, i64 size) {
    for (i64 n = 0; n < size; n++) if (p[n]) return 0;
    return 1;
}

/* Whether a batch's offsets are possible, and go on where those of the one before (if any) end, in no older epoch. */
INLINE int fits(bytes p, bytes before) {
    i64 first = (i64)big64(p), delta = (int32_t)big32(p + 23);
    if (first < 0 || delta < 0 || first > INT64_MAX - delta) return 0;
    if (!before) return 1;
    return first - (i64)big64(before) == (i64)(int32_t)big32(before + 23) + 1 && (int32_t)big32(p + 12) >= (int32_t)big32(before + 12);
}

/* OK and the bytes of the batch that begins at `p`, or why there is none. */
static inline i64 framed(bytes p, i64 remaining, i64 is_last, i64 *size) {
    if (remaining < HEADER && !is_last) return NEED_MORE;
    if ((remaining < 8 || !at64((i64)p)) && all_zero(p, remaining < HEADER ? remaining : HEADER)) return ZERO_TAIL;
    if (remaining <= 17) return TORN_TAIL;
    i64 length = (int32_t)big32(p + 8);
    if (length < HEADER - 12 || length > 64 * 1024 * 1024) return BAD_LENGTH;
    *size = length + 12;
    return *size <= remaining ? OK : is_last ? TORN_TAIL : NEED_MORE;
}

i64 index_batches(i64 base, i64 position, i64 end, i64 is_last, i64 columns, i64 crc_tables, i64 state) {
    i64 row = 0, stop = OK, is_continuous = 1;
    bytes before = 0;
    while (position < end) {
        bytes p = (bytes)(base + position);
        i64 size;
        if ((stop = framed(p, end - position, is_last, &size)) != OK) break;
        put64(column(columns, 0) + 8 * row, position);
        put64(column(columns, 1) + 8 * row, (i64)big64(p));
        put32(column(columns, 2) + 4 * row, size);
        put32(column(columns, 3) + 4 * row, big32(p + 12));
        put8(column(columns, 4) + row, p[16]);
        put32(column(columns, 5) + 4 * row, big32(p + 17));
        put16(column(columns, 6) + 2 * row, big16(p + 21));
        put32(column(columns, 7) + 4 * row, big32(p + 23));
        put64(column(columns, 8) + 8 * row, (i64)big64(p + 27));
        put64(column(columns, 9) + 8 * row, (i64)big64(p + 35));
        put64(column(columns, 10) + 8 * row, (i64)big64(p + 43));
        put16(column(columns, 11) + 2 * row, big16(p + 51));
        put32(column(columns, 12) + 4 * row, big32(p + 53));
        put32(column(columns, 13) + 4 * row, big32(p + 57));
        int right = crc32c(p + 21, size - 21, (const uint32_t *)crc_tables) == big32(p + 17);
        put8(column(columns, 14) + row, right);
        put8(column(columns, 15) + row, p[16] != 2 ? BAD_MAGIC : right ? OK : BAD_CRC);
        is_continuous = is_continuous && p[16] == 2 && right && fits(p, before);
        before = p;
        row++;
        position += size;
    }
    put64(state, row);
    put64(state + 8, position);
    put64(state + 16, is_continuous);
    return stop;
}

/* Framing, CRC and continuity at once, no column filled: what a check needs and nothing else. `state` holds the next
 * offset (below 0: not known) and the epoch where the log stands, and gets how many batches there were, and how many of
 * them do not fit. */
i64 verify(i64 base, i64 position, i64 end, i64 is_last, i64 crc_tables, i64 state) {
    i64 next = at64(state), epoch = at64(state + 8), batches = 0, odd = 0, stop = OK;
    while (position < end) {
        bytes p = (bytes)(base + position);
        i64 size;
        if ((stop = framed(p, end - position, is_last, &size)) != OK) break;
        i64 first = (i64)big64(p), delta = (int32_t)big32(p + 23), led = (int32_t)big32(p + 12);
        odd += p[16] != 2 || crc32c(p + 21, size - 21, (const uint32_t *)crc_tables) != big32(p + 17)
            || first < 0 || delta < 0 || (next >= 0 && first != next) || led < epoch;
        next = first + delta + 1;
        epoch = led;
        batches++;
        position += size;
    }
    put64(state, next);
    put64(state + 8, epoch);
    put64(state + 16, batches);
    put64(state + 24, odd);
    put64(state + 32, position);
    return stop;
}

/* ---- records ---- */

INLINE i64 bytes_field(i64 base, i64 position, i64 end, i64 *length, i64 *start) {
    *start = varint(base, position, end, length);
    if (*start < 0) { i64 status = varint_status(*start); *start = position; *length = 0; return status; }
    if (*length < 0) { *length = -1; return OK; }
    if (*length > end - *start) { *start = position; *length = 0; return BAD_RECORD; }
    return OK;
}

static i64 skip_headers(i64 base, i64 position, i64 end, i64 *at) {
    i64 count, length, start, status;
    i64 after = varint(base, position, end, &count);
    *at = position;
    if (after < 0) return varint_status(after);
    if (count < 0 || count > end - after) return BAD_RECORD;
    for (*at = after; count > 0; count--) {
        status = bytes_field(base, *at, end, &length, &start);
        if (status != OK) { *at = start; return status; }
        if (length < 0) return BAD_RECORD;
        status = bytes_field(base, start + length, end, &length, &start);
        *at = start;
        if (status != OK) return status;
        *at = start + (length > 0 ? length : 0);
    }
    return OK;
}

INLINE i64 frame(i64 base, i64 start, i64 limit, i64 row, bytes header, i64 columns, i64 *at) {
    i64 length, time, offset, key, key_at, value, value_at, status;
    i64 position = varint(base, start, limit, &length), after;
    *at = start;
    if (position < 0) return varint_status(position);
    if (length < 0 || length > limit - position) return BAD_RECORD;
    i64 end = position + length;
    *at = position;
    if (length == 0) return BAD_RECORD;
    position++;
    *at = position;
    after = varlong(base, position, end, &time);
    if (after < 0) return varint_status(after);
    *at = position = after;
    after = varint(base, position, end, &offset);
    if (after < 0) return varint_status(after);
    status = bytes_field(base, after, end, &key, &key_at);
    *at = key_at;
    if (status != OK) return status;
    status = bytes_field(base, key_at + (key > 0 ? key : 0), end, &value, &value_at);
    *at = value_at;
    if (status != OK) return status;
    position = value_at + (value > 0 ? value : 0);
    if (!(position + 1 == end && ((bytes)base)[position] == 0)) {
        status = skip_headers(base, position, end, at);
        if (status != OK) return status;
        if (*at != end) return BAD_RECORD;
    }
    *at = end;
    put64(column(columns, 1) + 8 * row, (i64)(big64(header) + (uint64_t)offset));
    put64(column(columns, 2) + 8 * row, big16(header + 21) & 8 ? (i64)big64(header + 35) : (i64)(big64(header + 27) + (uint64_t)time));
    put64(column(columns, 7) + 8 * row, key < 0 ? start : key_at);
    put32(column(columns, 8) + 4 * row, key);
    put64(column(columns, 9) + 8 * row, value < 0 ? start : value_at);
    put32(column(columns, 10) + 4 * row, value);
    return OK;
}

INLINE i64 program_of(i64 directory, i64 entry, i64 version) {
    i64 versions = directory + 12 * entry, last = at32(versions + 4), first = at32(versions);
    if (last < 0) return -UNKNOWN_RECORD_TYPE;
    if (version < first || version > last) return -UNKNOWN_RECORD_VERSION;
    return at32(directory + 4 * (at32(versions + 8) + version - first));
}

INLINE i64 body(i64 base, i64 start, i64 row, i64 is_control, i64 columns, i64 directory, i64 program, i64 scratch, i64 *at) {
    i64 position = at64(column(columns, 9) + 8 * row), length = at32(column(columns, 10) + 4 * row), end = position + length;
    i64 type = -1, version = -1, which, frame_version, after;
    *at = start;
    if (is_control) {
        i64 key_at = at64(column(columns, 7) + 8 * row);
        bytes key = (bytes)(base + key_at);
        if (at32(column(columns, 8) + 4 * row) < 4 || (int16_t)big16(key) < 0) { *at = key_at; return BAD_RECORD; }
        type = (int16_t)big16(key + 2);
        i64 versions = directory + 12 * (TYPES + type);
        if (type < 0 || type >= TYPES || at32(versions + 4) < 0) which = -UNKNOWN_CONTROL_TYPE;
        else { version = at32(versions); which = program_of(directory, TYPES + type, version); }
        if (length < 0 && which >= 0) return BAD_RECORD;
        *at = position;
    } else {
        if (length < 0) return BAD_RECORD;
        *at = position;
        after = unsigned_varint(base, position, end, &frame_version);
        if (after < 0) return varint_status(after);
        if (frame_version != 1) which = -UNKNOWN_FRAME_VERSION;
        else {
            *at = after;
            after = unsigned_varint(base, after, end, &type);
            if (after < 0) return varint_status(after);
            *at = after;
            after = unsigned_varint(base, after, end, &version);
            if (after < 0) return varint_status(after);
            *at = after;
            which = type < 0 || type >= TYPES ? -UNKNOWN_RECORD_TYPE : program_of(directory, type, version);
        }
    }
    put8(column(columns, 3) + row, is_control);
    put8(column(columns, 4) + row, which < 0 ? -which : OK);
    put32(column(columns, 5) + 4 * row, type);
    put32(column(columns, 6) + 4 * row, version);
    put64(column(columns, 11) + 8 * row, *at);
    put32(column(columns, 12) + 4 * row, 0);
    put16(column(columns, 13) + 2 * row, which < 0 ? -1 : type + TYPES * is_control);
    if (which < 0) return OK;
    i64 unknown = at64(scratch);
    i64 status = walk(base, *at, end, which, program, scratch + MARKS_BYTES, scratch, at);
    if (status != OK) return status;
    put32(column(columns, 12) + 4 * row, at64(scratch) - unknown);
    return *at != end && !is_control ? BAD_RECORD : OK;
}

i64 index_records(i64 base, i64 batch_rows, i64 positions, i64 sizes, i64 batch_count, i64 columns, i64 directory, i64 program,
                  i64 scratch, i64 verdicts, i64 room) {
    i64 row = 0;
    for (i64 batch = 0; batch < batch_count; batch++) {
        i64 start = at64(positions + 8 * batch), limit = start + at32(sizes + 4 * batch);
        bytes header = (bytes)(base + start);
        i64 attributes = big16(header + 21), is_control = attributes >> 5 & 1, count = (int32_t)big32(header + 57);
        i64 position = start + HEADER, status = OK, at = position, first = row, record_end;
        if (attributes & 7) { status = BAD_COMPRESSION; at = start + 21; count = 0; }
        else if (count < 0 || count * 7 > limit - position) { status = BAD_RECORD; at = start + 57; count = 0; }
        for (; count > 0; count--) {
            if (row == room) return NO_SPACE;
            status = frame(base, position, limit, row, header, columns, &record_end);
            at = record_end;
            if (status == OK) {
                put64(column(columns, 0) + 8 * row, at64(batch_rows + 8 * batch));
                status = body(base, position, row, is_control, columns, directory, program, scratch, &at);
            }
            if (status != OK) break;
            position = record_end;
            row++;
        }
        if (status == OK && position != limit) { status = BAD_RECORD; at = position; }
        if (status != OK) row = first;
        put64(verdicts + 16 * batch, status);
        put64(verdicts + 16 * batch + 8, at);
    }
    return row;
}

i64 group_rows(i64 kinds, i64 row_count, i64 ends, i64 rows, i64 group_count) {
    const int16_t *kind = (const int16_t *)kinds;
    i64 *end = (i64 *)ends, start = 0;
    for (i64 row = 0; row < row_count; row++) end[kind[row] + 1]++;
    for (i64 group = 0; group < group_count; group++) { i64 count = end[group]; end[group] = start; start += count; }
    for (i64 row = 0; row < row_count; row++) ((i64 *)rows)[end[kind[row] + 1]++] = row;
    return row_count;
}

#include "decode_kernel_typed.h"
