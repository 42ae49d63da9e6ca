/* Loads, varints and the walk that checks a body: what decode_kernel.c stands on. */
#include <stdint.h>
#include <string.h>

typedef int64_t i64;
typedef const uint8_t *bytes;

enum { OK, TORN_TAIL, ZERO_TAIL, BAD_LENGTH, BAD_MAGIC, BAD_CRC, BAD_VARINT, BAD_RECORD, BAD_STRING, BAD_COMPRESSION };
enum { UNKNOWN_FRAME_VERSION = 11, UNKNOWN_RECORD_TYPE, UNKNOWN_RECORD_VERSION, UNKNOWN_CONTROL_TYPE };
enum { NEED_MORE = -16, NO_SPACE = -17, CUT = -1, OVERLONG = -2 };
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
