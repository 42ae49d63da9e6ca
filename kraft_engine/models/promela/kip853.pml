/* KIP-853's voter changes, written from the proposal and the Raft paper, not from the engine.

   Nodes 0 to N-1; voters are a set of bits. A log is an array of (epoch, voters): voters 0 is a plain record. An
   exchange (a vote, a fetch) is one step: what the model leaves out is delay, which it replaces by any node moving at
   any time. A leader's set is that of the newest voter record in its log, committed or not.

   BEGIN_LED starts with a leader whose epoch is committed. Switched on at build time (-D): BUG_EPOCH lets a leader change voters before a record of its own epoch is committed
   (the single-server bug), BUG_MAJORITY takes half of the voters for a majority. */

#ifndef N
#define N 4
#endif
#ifndef FIRST
#define FIRST 7            /* voters 0, 1 and 2 */
#endif
#ifndef EPOCHS
#define EPOCHS 3
#endif
#ifndef LEN
#define LEN 4              /* records a log may hold */
#endif
#ifndef CHANGES
#define CHANGES 2
#endif

typedef Log { byte epoch[LEN]; byte voters[LEN]; byte end };

Log log[N];
byte epoch[N];             /* persisted */
byte voted[N];             /* node + 1; 0 is none */
bool leads[N];
byte acked[N * N];         /* what leader l knows of node n, in l's epoch: l * N + n */
byte start_of[N];          /* where leader l's epoch begins */
byte mark[N];              /* leader l's high watermark */
byte changes;

byte committed;            /* ghost: the committed log */
byte committed_epoch[LEN];
byte committed_voters[LEN];
byte led_by[EPOCHS + 1];   /* ghost: node + 1 that led an epoch */

#ifdef BUG_MAJORITY
#define IS_MAJORITY(count, size) ((count) * 2 >= (size))
#else
#define IS_MAJORITY(count, size) ((count) * 2 > (size))
#endif
#define HAS(set, n) (((set) >> (n)) & 1)

inline set_of(n, result, i_) {
  result = FIRST; i_ = 0;
  do
  :: i_ < log[n].end -> if :: log[n].voters[i_] != 0 -> result = log[n].voters[i_] :: else fi; i_++
  :: else -> break
  od
}

inline size_of(set, result, i_) {
  result = 0; i_ = 0;
  do :: i_ < N -> result = result + HAS(set, i_); i_++ :: else -> break od
}

/* Whether v, a voter of c's set that is in no later epoch, gives c its vote: c's log must not be the shorter one. */
inline may_grant(c, v, result) {
  result = (v != c && HAS(vset, v) && epoch[v] <= epoch[c]);
  result = result && (epoch[v] < epoch[c] || voted[v] == 0 || voted[v] == c + 1);
  last_c = 0; last_v = 0;
  if :: log[c].end > 0 -> last_c = log[c].epoch[log[c].end - 1] :: else fi;
  if :: log[v].end > 0 -> last_v = log[v].epoch[log[v].end - 1] :: else fi;
  result = result && (last_c > last_v || (last_c == last_v && log[c].end >= log[v].end));
  last_c = 0; last_v = 0
}

inline append(n, set) {
  log[n].epoch[log[n].end] = epoch[n];
  log[n].voters[log[n].end] = set;
  log[n].end++
}

/* A node stands and collects every vote that any subset of the others would give: one step. */
inline stand(n) {
  d_step {
    set_of(n, vset, i);
    epoch[n]++; voted[n] = n + 1; leads[n] = false
  };
  count = HAS(vset, n); k = 0;
  do
  :: k < N ->
      may_grant(n, k, allowed);
      if
      :: allowed ->
          d_step { if :: epoch[k] < epoch[n] -> leads[k] = false :: else fi;
                   epoch[k] = epoch[n]; voted[k] = n + 1; count++ }
      :: true                                    /* refused, or lost */
      fi;
      k++
  :: else -> break
  od;
  allowed = false;
  d_step {
    size_of(vset, size, i);
    if
    :: IS_MAJORITY(count, size) && log[n].end < LEN ->
        assert(led_by[epoch[n]] == 0);           /* election safety */
        led_by[epoch[n]] = n + 1;
        /* leader completeness: what is committed is in the new leader's log */
        assert(log[n].end >= committed);
        i = 0;
        do
        :: i < committed -> assert(log[n].epoch[i] == committed_epoch[i] && log[n].voters[i] == committed_voters[i]); i++
        :: else -> break
        od;
        leads[n] = true; start_of[n] = log[n].end; mark[n] = 0;
        i = 0; do :: i < N -> acked[n * N + i] = 0; i++ :: else -> break od;
        append(n, 0)                             /* LeaderChange */
    :: else
    fi;
    count = 0; size = 0; vset = 0; k = 0; i = 0; j = 0
  }
}

/* n fetches from leader l: truncates what differs, takes the next record, and so acknowledges. */
inline fetch(n, l) {
  d_step {
    if :: epoch[n] < epoch[l] -> epoch[n] = epoch[l]; voted[n] = 0; leads[n] = false :: else fi;
    i = 0;
    do
    :: i < log[n].end && i < log[l].end && log[n].epoch[i] == log[l].epoch[i] -> i++
    :: else -> break
    od;
    if
    :: i < log[n].end ->
        /* nothing committed is cut */
        assert(i >= committed || log[n].epoch[i] != committed_epoch[i] || log[n].voters[i] != committed_voters[i]);
        do :: log[n].end > i -> log[n].end--; log[n].epoch[log[n].end] = 0; log[n].voters[log[n].end] = 0 :: else -> break od
    :: else ->
        if
        :: i < log[l].end -> log[n].epoch[i] = log[l].epoch[i]; log[n].voters[i] = log[l].voters[i]; log[n].end = i + 1
        :: else
        fi
    fi;
    acked[l * N + n] = log[n].end;
    advance(l);
    i = 0
  }
}

/* The leader's high watermark: what a majority of its latest set holds, above the start of its epoch. */
inline advance(l) {
  set_of(l, vset, i); size_of(vset, size, i);
  j = log[l].end;
  do
  :: j > start_of[l] && j > mark[l] ->
      count = 0; i = 0;
      do
      :: i < N -> if :: HAS(vset, i) && ((i == l) || acked[l * N + i] >= j) -> count++ :: else fi; i++
      :: else -> break
      od;
      if :: IS_MAJORITY(count, size) -> break :: else -> j-- fi
  :: else -> j = 0; break
  od;
  if
  :: j > mark[l] ->
      mark[l] = j;
      i = 0;
      do
      :: i < j ->
          if
          :: i < committed -> assert(committed_epoch[i] == log[l].epoch[i] && committed_voters[i] == log[l].voters[i])
          :: else -> committed_epoch[i] = log[l].epoch[i]; committed_voters[i] = log[l].voters[i]; committed = i + 1
          fi;
          i++
      :: else -> break
      od
  :: else
  fi;
  count = 0; size = 0; vset = 0; i = 0; j = 0
}

/* Whether leader l may change its voters: its epoch is committed, and so is its newest voter record. */
inline may_change(l, result) {
  result = (changes < CHANGES && log[l].end < LEN);
#ifndef BUG_EPOCH
  result = result && mark[l] > start_of[l];
#endif
  i = 0;
  do
  :: i < log[l].end ->
#ifdef BUG_EPOCH
      /* the bug: an inherited voter record counts as settled */
      if :: log[l].voters[i] != 0 && log[l].epoch[i] == epoch[l] && i >= mark[l] -> result = false :: else fi;
#else
      if :: log[l].voters[i] != 0 && i >= mark[l] -> result = false :: else fi;
#endif
      i++
  :: else -> break
  od;
  i = 0
}

active proctype quorum() {
  byte i, j, k, count, size, vset, n, l, other, last_c, last_v;
  bool allowed;
#ifdef BEGIN_LED
  /* Node 0 leads epoch 1, and every voter has its first record. */
  d_step {
    do
    :: i < N && HAS(FIRST, i) -> epoch[i] = 1; voted[i] = 1; append(i, 0); acked[i] = 1; i++
    :: i < N && !HAS(FIRST, i) -> i++
    :: else -> break
    od;
    i = 0; leads[0] = true; led_by[1] = 1; mark[0] = 1; committed = 1; committed_epoch[0] = 1
  };
#endif
  do
  :: atomic {
      n = 0;
      do :: n < N - 1 -> n++ :: break od;        /* any node */
      if
      :: !leads[n] && epoch[n] < EPOCHS -> set_of(n, vset, i); if :: HAS(vset, n) -> stand(n) :: else -> vset = 0 fi
      :: leads[n] ->
          l = n; other = 0;
          do :: other < N - 1 -> other++ :: break od;
          if
          :: other != l && epoch[other] <= epoch[l] -> fetch(other, l)
          :: log[l].end < LEN ->
              may_change(l, allowed);
              if
              :: allowed -> d_step {
                  set_of(l, vset, i);
                  changes++;
                  append(l, (vset ^ (1 << other)));
                  vset = 0; advance(l) }
              :: else
              fi
          :: mark[l] > start_of[l] && log[l].end < LEN -> append(l, 0)
          :: leads[l] = false                    /* restarts, or heard from no majority */
          fi
      :: else
      fi;
      n = 0; l = 0; other = 0; allowed = false }
  od
}
