/* The decoder's kernels once more, in C: what a C compiler makes of the same work, for benchmarks.decode.
 *
 * The same interface, tables and order of work as kraft_codec/kernels (framing, records, walk, typed), so that the one
 * can be put in the place of the other and their results compared: headers and CRC-32C of every batch; framing, envelope,
 * type and version of every record, its body checked by the schema's program; fields put into Arrow buffers.
 * Build: cc -O3 -march=native -shared -fPIC (needs SSE 4.2).
 */
#include <nmmintrin.h>
#include <stdint.h>
#include <string.h>

typedef int64_t i64;
typedef const uint8_t *bytes;

enum { OK, TORN_TAIL, ZERO_TAIL, BAD_LENGTH, BAD_MAGIC, BAD_CRC, BAD_VARINT, BAD_RECORD, BAD_STRING, BAD_COMPRESSION };
enum { UNKNOWN_FRAME_VERSION = 11, UNKNOWN_RECORD_TYPE, UNKNOWN_RECORD_VERSION, UNKNOWN_CONTROL_TYPE };
enum { NEED_MORE = -16, CUT = -1, OVERLONG = -2 };
enum { END = 0, SKIP = 10, SKIP_TEXT, SKIP_BYTES, SKIP_ARRAY, LOOP, NEXT, TAGS, NEXT_TAG, MARK };
enum { TAG_UNKNOWN, TAG_NOT_IN_VERSION, TAG_OF_FIXED, TAG_OF_LIST, TAG_OF_PROGRAM };
enum { PUT_INT8 = 80, PUT_BOOL, PUT_INT16, PUT_UINT16, PUT_INT32, PUT_UINT32, PUT_INT64, PUT_UUID,
       PUT_LIST, PUT_TAGS, PUT_NEXT_TAG, PUT_TEXT, PUT_LOOP, PUT_NEXT };
enum { HEADER = 61, MARKS_BYTES = 512, OP_BYTES = 32, COLUMN_BYTES = 32, TYPES = 256, LANE = 256 };

#define INLINE static inline __attribute__((always_inline))

INLINE uint16_t big16(bytes p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
INLINE uint32_t big32(bytes p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
INLINE uint64_t big64(bytes p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
INLINE i64 at64(i64 a) { i64 v; memcpy(&v, (void *)a, 8); return v; }
INLINE i64 at32(i64 a) { int32_t v; memcpy(&v, (void *)a, 4); return v; }
INLINE void put8(i64 a, i64 v) { *(uint8_t *)a = (uint8_t)v; }
INLINE void put16(i64 a, i64 v) { uint16_t x = (uint16_t)v; memcpy((void *)a, &x, 2); }
INLINE void put32(i64 a, i64 v) { uint32_t x = (uint32_t)v; memcpy((void *)a, &x, 4); }
INLINE void put64(i64 a, i64 v) { memcpy((void *)a, &v, 8); }
INLINE i64 column(i64 columns, int number) { return at64(columns + 8 * number); }

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

/* ---- varints ---- */

static i64 long_unsigned(i64 base, i64 position, i64 end, i64 *value) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (position >= end) return CUT;
        uint8_t byte = ((bytes)base)[position++];
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) { *value = (int32_t)bits; return position; }
    }
    return OVERLONG;
}

INLINE i64 unsigned_varint(i64 base, i64 position, i64 end, i64 *value) {
    *value = 0;
    if (position >= end) return CUT;
    uint8_t byte = ((bytes)base)[position];
    if (byte < 0x80) { *value = byte; return position + 1; }
    return long_unsigned(base, position, end, value);
}

INLINE i64 varint(i64 base, i64 position, i64 end, i64 *value) {
    i64 raw, after = unsigned_varint(base, position, end, &raw);
    *value = ((raw & 0xFFFFFFFF) >> 1) ^ -(raw & 1);
    return after;
}

static i64 varlong(i64 base, i64 position, i64 end, i64 *value) {
    uint64_t bits = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (position >= end) return CUT;
        uint8_t byte = ((bytes)base)[position++];
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) { *value = (i64)(bits >> 1) ^ -(i64)(bits & 1); return position; }
    }
    return OVERLONG;
}

INLINE i64 varint_status(i64 after) { return after == CUT ? BAD_RECORD : BAD_VARINT; }
INLINE i64 length_of(i64 raw) { return (int32_t)(uint32_t)(raw - 1); }

/* ---- batches ---- */

static int all_zero(bytes p, i64 size) {
    for (i64 n = 0; n < size; n++) if (p[n]) return 0;
    return 1;
}

i64 index_batches(i64 base, i64 position, i64 end, i64 is_last, i64 columns, i64 crc_tables, i64 state) {
    i64 row = 0, stop = OK;
    while (position < end) {
        bytes p = (bytes)(base + position);
        i64 remaining = end - position;
        if (remaining < HEADER && !is_last) { stop = NEED_MORE; break; }
        if (!*p && all_zero(p, remaining < HEADER ? remaining : HEADER)) { stop = ZERO_TAIL; break; }
        if (remaining <= 17) { stop = TORN_TAIL; break; }
        i64 length = (int32_t)big32(p + 8);
        if (length < HEADER - 12 || length > 64 * 1024 * 1024) { stop = BAD_LENGTH; break; }
        i64 size = length + 12;
        if (size > remaining) { stop = is_last ? TORN_TAIL : NEED_MORE; break; }
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
        row++;
        position += size;
    }
    put64(state, row);
    put64(state + 8, position);
    return stop;
}

/* ---- the walk that checks a body ---- */

static int utf8_tail(bytes p, bytes end) {
    while (p < end) {
        uint8_t first = *p;
        if (first < 0x80) { p++; continue; }
        if (first < 0xC2 || first > 0xF4) return 0;
        int size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        if (p + size > end || (p[1] & 0xC0) != 0x80) return 0;
        if ((first == 0xE0 && p[1] < 0xA0) || (first == 0xED && p[1] > 0x9F)) return 0;
        if ((first == 0xF0 && p[1] < 0x90) || (first == 0xF4 && p[1] > 0x8F)) return 0;
        for (int n = 2; n < size; n++) if ((p[n] & 0xC0) != 0x80) return 0;
        p += size;
    }
    return 1;
}

INLINE int is_utf8(bytes p, i64 size) {
    bytes end = p + size;
    for (uint64_t word; p + 8 <= end; p += 8) {
        memcpy(&word, p, 8);
        if (word & 0x8080808080808080u) return utf8_tail(p, end);
    }
    for (; p < end; p++) if (*p >= 0x80) return utf8_tail(p, end);
    return 1;
}

INLINE i64 skip_array(i64 base, i64 position, i64 end, i64 width, i64 nullable, i64 *at) {
    i64 raw, after = unsigned_varint(base, position, end, &raw);
    *at = position;
    if (after < 0) return varint_status(after);
    i64 count = length_of(raw), remaining = end - after;
    if (count < 0) { if (nullable) *at = after; return nullable ? OK : BAD_RECORD; }
    if (count > remaining) return BAD_RECORD;
    if (count * width > remaining) { *at = after + remaining / width * width; return BAD_RECORD; }
    *at = after + count * width;
    return OK;
}

INLINE i64 skip_text(i64 base, i64 position, i64 end, i64 nullable, i64 *at) {
    i64 raw, after = unsigned_varint(base, position, end, &raw);
    *at = position;
    if (after < 0) return varint_status(after);
    i64 length = length_of(raw);
    if (length < 0) { if (nullable) *at = after; return nullable ? OK : BAD_RECORD; }
    if (length > 0x7FFF || length > end - after) return BAD_RECORD;
    *at = after;
    if (!is_utf8((bytes)(base + after), length)) return BAD_STRING;
    *at = after + length;
    return OK;
}

static void note_unknown(i64 position, i64 size, i64 marks) {
    i64 number = at64(marks);
    put64(marks, number + 1);
    if (number < at64(marks + 8)) {
        i64 place = at64(marks + 16) + 24 * number;
        put64(place, at64(marks + 24)); put64(place + 8, position); put64(place + 16, size);
    }
}

INLINE i64 next_tag(i64 base, i64 position, i64 end, i64 op, i64 program, i64 frames, i64 marks, i64 *at, i64 *row) {
    i64 remaining = at64(frames);
    *row = 0;
    while (remaining > 0) {
        i64 tag, size, entry = program, what = TAG_UNKNOWN;
        remaining--;
        i64 size_position = unsigned_varint(base, position, end, &tag);
        if (size_position < 0) { *at = position; return varint_status(size_position); }
        i64 after = unsigned_varint(base, size_position, end, &size);
        if (after < 0) { *at = size_position; return varint_status(after); }
        if (tag >= 0 && tag < at32(op + 8)) { entry = program + at32(op + 12) + 16 * tag; what = at32(entry); }
        if (what == TAG_OF_LIST) {
            i64 status = skip_array(base, after, end, at32(entry + 4), at32(entry + 8), &position);
            if (status != OK) { *at = position; return status; }
        } else if (what == TAG_OF_FIXED) {
            if (at32(entry + 4) > end - after) { *at = after; return BAD_RECORD; }
            position = after + at32(entry + 4);
        } else if (what == TAG_UNKNOWN) {
            if (size < 0 || size > end - after) { *at = size_position; return BAD_RECORD; }
            note_unknown(after, size, marks);
            position = after + size;
        } else if (what == TAG_OF_PROGRAM) {
            put64(frames, remaining);
            *at = after; *row = at32(entry + 12);
            return OK;
        } else { *at = position; return BAD_RECORD; }
    }
    *at = position;
    return OK;
}

static i64 walk(i64 base, i64 position, i64 end, i64 row, i64 program, i64 frames, i64 marks, i64 *at) {
    for (;;) {
        i64 op = program + OP_BYTES * row, status = OK, count;
        row++;
        *at = position;
        switch (at32(op)) {
        case SKIP:
            if (end - position < at32(op + 4)) {
                for (i64 widths = program + at32(op + 8); end - position >= at32(widths); widths += 4) position += at32(widths);
                *at = position;
                return BAD_RECORD;
            }
            *at = position + at32(op + 4);
            break;
        case SKIP_ARRAY:
            for (i64 n = at32(op + 12); n > 0; n--) {
                status = skip_array(base, position, end, at32(op + 4), at32(op + 8), at);
                if (status != OK) return status;
                position = *at;
            }
            break;
        case TAGS:
        case NEXT_TAG:
            if (at32(op) == TAGS) {
                i64 after = unsigned_varint(base, position, end, &count);
                if (after < 0) return varint_status(after);
                position = after;
                frames += 16;
                put64(frames, count);
            }
            status = next_tag(base, position, end, op, program, frames, marks, at, &row);
            if (row == 0) { row = at32(op + 4); frames -= 16; }
            break;
        case SKIP_TEXT: status = skip_text(base, position, end, at32(op + 4), at); break;
        case SKIP_BYTES: status = skip_array(base, position, end, 1, at32(op + 4), at); break;
        case LOOP:
            status = skip_array(base, position, end, 0, at32(op + 4), at);
            unsigned_varint(base, position, end, &count);
            count = length_of(count);
            if (count > 0) { frames += 16; put64(frames, count); put64(frames + 8, row); }
            else row = at32(op + 8);
            break;
        case NEXT:
            count = at64(frames) - 1;
            put64(frames, count);
            if (count > 0) row = at64(frames + 8); else frames -= 16;
            break;
        case MARK: put64(marks + 32 + 8 * at32(op + 4), position); break;
        case END: return OK;
        }
        if (status != OK) return status;
        position = *at;
    }
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

i64 index_records(i64 base, i64 positions, i64 sizes, i64 batch_count, i64 columns, i64 directory, i64 program, i64 scratch,
                  i64 verdicts) {
    i64 row = 0;
    for (i64 batch = 0; batch < batch_count; batch++) {
        i64 start = at64(positions + 8 * batch), limit = start + at32(sizes + 4 * batch);
        bytes header = (bytes)(base + start);
        i64 attributes = big16(header + 21), is_control = attributes >> 5 & 1, count = (int32_t)big32(header + 57);
        i64 position = start + HEADER, status = OK, at = position, first = row, record_end;
        if (attributes & 7) { status = BAD_COMPRESSION; at = start + 21; count = 0; }
        else if (count < 0 || count * 7 > limit - position) { status = BAD_RECORD; at = start + 57; count = 0; }
        for (; count > 0; count--) {
            status = frame(base, position, limit, row, header, columns, &record_end);
            at = record_end;
            if (status == OK) {
                put32(column(columns, 0) + 4 * row, batch);
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

/* ---- typed columns ---- */

INLINE i64 put_fixed(i64 kind, bytes p, i64 remaining, i64 values, i64 index) {
    i64 width = 0;
    switch (kind) {
    case PUT_INT32: width = 4; if (remaining >= 4) put32(values + 4 * index, big32(p)); break;
    case PUT_UUID: width = 16; if (remaining >= 16) memcpy((void *)(values + 16 * index), p, 16); break;
    case PUT_INT8: width = 1; if (remaining >= 1) put8(values + index, *p); break;
    case PUT_INT64: width = 8; if (remaining >= 8) put64(values + 8 * index, (i64)big64(p)); break;
    case PUT_INT16: width = 2; if (remaining >= 2) put16(values + 2 * index, big16(p)); break;
    case PUT_UINT16: width = 2; if (remaining >= 2) put32(values + 4 * index, big16(p)); break;
    case PUT_BOOL: width = 1; if (remaining >= 1) put8(values + index, *p != 0); break;
    case PUT_UINT32: width = 4; if (remaining >= 4) put64(values + 8 * index, big32(p)); break;
    }
    return remaining >= width ? width : -1;
}

INLINE i64 values_start(i64 op, i64 where, i64 index) {
    i64 offsets = at64(where + 8);
    if (at32(op + 24)) {
        i64 filled = at64(where + 24), last = at32(offsets + 4 * filled);
        while (filled < index) put32(offsets + 4 * ++filled, last);
        put64(where + 24, index + 1);
        if (filled == index) return last;
    }
    return at32(offsets + 4 * index);
}

INLINE void put_end(i64 where, i64 index, i64 start, i64 count) {
    put32(at64(where + 8) + 4 * index + 4, start + (count > 0 ? count : 0));
    i64 validity = at64(where + 16);
    if (validity) {
        uint8_t *byte = (uint8_t *)(validity + (index >> 3));
        *byte = (uint8_t)((*byte & ~(1 << (index & 7))) | ((count >= 0) << (index & 7)));
    }
}

INLINE i64 put_list(i64 base, i64 position, i64 end, i64 op, i64 where, i64 index, i64 table) {
    i64 raw, width = at32(op + 16), after = unsigned_varint(base, position, end, &raw), count = length_of(raw);
    if (after < 0 || count * width > end - after) return -1;
    i64 start = values_start(op, where, index);
    put_end(where, index, start, count);
    i64 values = at64(table + COLUMN_BYTES * at32(op + 8)), kind = at32(op + 12);
    bytes p = (bytes)(base + after);
    if (kind == PUT_INT32) for (i64 n = 0; n < count; n++) put32(values + 4 * (start + n), big32(p + 4 * n));
    else if (kind == PUT_UUID) for (i64 n = 0; n < count; n++) memcpy((void *)(values + 16 * (start + n)), p + 16 * n, 16);
    else for (i64 n = 0; n < count; n++) put_fixed(kind, p + width * n, width, values, start + n);
    return after + (count > 0 ? count : 0) * width;
}

INLINE i64 next_put_tag(i64 base, i64 position, i64 end, i64 op, i64 program, i64 frames, i64 *row) {
    i64 remaining = at64(frames), tag, size;
    *row = 0;
    while (remaining > 0) {
        remaining--;
        i64 after = unsigned_varint(base, position, end, &tag);
        if (after < 0) return -1;
        after = unsigned_varint(base, after, end, &size);
        if (after < 0) return -1;
        if (tag >= 0 && tag < at32(op + 8)) *row = at32(program + at32(op + 12) + 4 * tag);
        if (*row) { put64(frames, remaining); return after; }
        if (size < 0 || size > end - after) return -1;
        position = after + size;
    }
    return position;
}

static i64 put_body(i64 base, i64 position, i64 end, i64 row, i64 index, i64 program, i64 frames, i64 table) {
    for (;;) {
        i64 op = program + OP_BYTES * row++, what = at32(op), where = table + COLUMN_BYTES * at32(op + 4);
        i64 fallback = at32(op + 28), raw, count, start;
        switch (what) {
        case PUT_INT8: case PUT_BOOL: case PUT_INT16: case PUT_UINT16:
        case PUT_INT32: case PUT_UINT32: case PUT_INT64: case PUT_UUID: {
            if (fallback) { put_fixed(what, (bytes)(program + fallback), 32, at64(where), index); break; }
            i64 width = put_fixed(what, (bytes)(base + position), end - position, at64(where), index);
            if (width < 0) return -1;
            position += width;
            break;
        }
        case PUT_LIST:
            if (fallback) { put_end(where, index, values_start(op, where, index), *(bytes)(program + fallback) - 1); break; }
            position = put_list(base, position, end, op, where, index, table);
            if (position < 0) return -1;
            break;
        case PUT_TAGS:
        case PUT_NEXT_TAG:
            if (what == PUT_TAGS) {
                position = unsigned_varint(base, position, end, &count);
                frames += 32;
                put64(frames, count);
                if (position < 0) return -1;
            }
            position = next_put_tag(base, position, end, op, program, frames, &row);
            if (position < 0) return -1;
            if (!row) { row = at32(op + 4); frames -= 32; }
            break;
        case PUT_TEXT:
        case PUT_LOOP:
            if (fallback) {
                put_end(where, index, values_start(op, where, index), *(bytes)(program + fallback) - 1);
                if (what == PUT_LOOP) row = at32(op + 8);
                break;
            }
            position = unsigned_varint(base, position, end, &raw);
            count = length_of(raw);
            if (position < 0 || count > end - position) return -1;
            start = values_start(op, where, index);
            put_end(where, index, start, count);
            if (what == PUT_TEXT) {
                if (count > 0) { memcpy((void *)(at64(where) + start), (bytes)(base + position), count); position += count; }
            } else if (count > 0) {
                frames += 32;
                put64(frames, count); put64(frames + 8, row); put64(frames + 16, index);
                index = start;
            } else row = at32(op + 8);
            break;
        case PUT_NEXT:
            count = at64(frames) - 1;
            put64(frames, count);
            index++;
            if (count > 0) row = at64(frames + 8); else { index = at64(frames + 16); frames -= 32; }
            break;
        default: return position;
        }
    }
}

i64 fill_columns(i64 base, i64 rows, i64 row_count, i64 records, i64 program_rows, i64 program, i64 scratch, i64 table,
                 i64 envelope) {
    for (i64 number = 0; number < row_count; number++) {
        i64 row = at64(rows + 8 * number), version = at32(at64(records) + 4 * row);
        i64 position = at64(at64(records + 8) + 8 * row), batch = at64(at64(records + 48) + 8 * row);
        put64(at64(envelope) + 8 * number, at64(at64(records + 32) + 8 * row));
        put32(at64(envelope + 8) + 4 * number, at32(at64(records + 64) + 4 * batch));
        put64(at64(envelope + 16) + 8 * number, at64(at64(records + 40) + 8 * row));
        put64(at64(envelope + 24) + 8 * number, at64(at64(records + 72) + 8 * batch));
        put32(at64(envelope + 32) + 4 * number, version);
        put32(at64(envelope + 40) + 4 * number, at32(at64(records + 56) + 4 * row));
        i64 end = at64(at64(records + 16) + 8 * row) + at32(at64(records + 24) + 4 * row);
        if (put_body(base, position, end, at32(program_rows + 4 * version), number, program, scratch, table) < 0) return -1 - number;
    }
    return row_count;
}
