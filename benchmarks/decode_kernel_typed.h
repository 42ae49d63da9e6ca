/* Fields into Arrow buffers: the last part of decode_kernel.c. */
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

INLINE void ask_ahead(i64 base, i64 rows, i64 row_count, i64 records, i64 number) {
    static const i64 widths[] = { 4, 8, 8, 4, 8, 8, 8, 4 };
    i64 last = row_count - 1, row = at64(rows + 8 * (number + 16 < last ? number + 16 : last));
    for (int n = 0; n < 8; n++) __builtin_prefetch((void *)(at64(records + 8 * n) + widths[n] * row));
    row = at64(rows + 8 * (number + 8 < last ? number + 8 : last));
    i64 body = base + at64(at64(records + 8) + 8 * row);
    __builtin_prefetch((void *)body);
    __builtin_prefetch((void *)(body + 64));
    i64 batch = at64(at64(records + 48) + 8 * row);
    __builtin_prefetch((void *)(at64(records + 64) + 4 * batch));
    __builtin_prefetch((void *)(at64(records + 72) + 8 * batch));
}

i64 fill_columns(i64 base, i64 rows, i64 row_count, i64 records, i64 program_rows, i64 program, i64 scratch, i64 table,
                 i64 envelope) {
    for (i64 number = 0; number < row_count; number++) {
        ask_ahead(base, rows, row_count, records, number);
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
