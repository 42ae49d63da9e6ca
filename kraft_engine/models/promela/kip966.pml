/* KIP-966's partition state: ISR, ELR, leader and what replicas hold, written from the proposal, not from the engine.

   One partition of N replicas, all in the ISR at first. Each replica holds a number of records, of which a number is
   synced; an unclean stop loses what is not. acks=all records are acknowledged when the whole ISR holds them and the
   ISR has at least MIN members. The controller sees a broker's stop at once and keeps, as KIP-966 says:
     - a broker that is fenced leaves the ISR, and joins the ELR where the ISR is then smaller than MIN;
     - the ELR is emptied as soon as the ISR has MIN members;
     - a broker whose shutdown was unclean leaves the ELR, and the ISR;
     - an ISR member leads, else an unfenced ELR member, else nobody does (unclean election is off).
   Up to MIN - 1 unclean stops are within the promise: no acknowledged record is lost.

   Switched on at build time: BUG_NO_ELR never adds to the ELR, and elects the last ISR member when it is back
   (Kafka before KIP-966); BUG_UNCLEAN_STAYS keeps unclean brokers in the ELR; BUG_MIN acknowledges below MIN. */

#ifndef N
#define N 3
#endif
#ifndef MIN
#define MIN 2
#endif
#ifndef RECORDS
#define RECORDS 2
#endif
#ifndef UNCLEAN
#define UNCLEAN (MIN - 1)   /* unclean stops within the promise */
#endif

#define HAS(set, n) (((set) >> (n)) & 1)
#define ALL ((1 << N) - 1)
#define NOBODY N

byte end[N];                /* records that a replica holds */
byte synced[N];             /* records that an unclean stop leaves */
byte isr = ALL;
byte elr;
byte up = ALL;              /* running and unfenced */
byte lost_power;            /* stopped uncleanly, not yet back in the ISR */
byte leader;
byte acked;                 /* ghost: acknowledged records */
byte last_isr;              /* before KIP-966: the last member of the ISR */
byte size, i;

inline size_of(set) {
  size = 0; i = 0;
  do :: i < N -> size = size + HAS(set, i); i++ :: else -> break od;
  i = 0
}

/* Fences n, which has stopped: KIP-966's transition of ISR and ELR. */
inline fence(n) {
  if
  :: HAS(isr, n) ->
      last_isr = n;
      isr = isr & ~(1 << n);
      size_of(isr);
#ifndef BUG_NO_ELR
      if :: size < MIN -> elr = elr | (1 << n) :: else fi
#endif
  :: else
  fi
}

inline elect() {
  if
  :: leader != NOBODY && HAS(up, leader) && HAS(isr, leader) -> skip
  :: else ->
      leader = NOBODY; i = 0;
      do
      :: i < N && HAS(isr, i) && HAS(up, i) -> leader = i; break
      :: i < N && !(HAS(isr, i) && HAS(up, i)) -> i++
      :: i >= N -> break
      od;
      i = 0;
      do
      :: leader == NOBODY && i < N && HAS(elr, i) && HAS(up, i) -> leader = i; isr = isr | (1 << i); elr = elr & ~(1 << i)
      :: leader == NOBODY && i < N && !(HAS(elr, i) && HAS(up, i)) -> i++
      :: leader != NOBODY || i >= N -> break
      od;
#ifdef BUG_NO_ELR
      if
      :: leader == NOBODY && isr == 0 && HAS(up, last_isr) -> leader = last_isr; isr = 1 << last_isr
      :: else
      fi;
#endif
      i = 0;
      /* A new leader holds every acknowledged record. */
      if :: leader != NOBODY -> assert(end[leader] >= acked) :: else fi
  fi;
  size_of(isr);
  if :: size >= MIN -> elr = 0 :: else fi;
  size = 0
}

active proctype partition() {
  byte n, unclean;
  bool all_hold;
  do
  :: atomic {
      n = 0;
      do :: n < N - 1 -> n++ :: break od;
      if
      :: n == leader && end[n] < RECORDS -> end[n]++                               /* a producer writes */
      :: leader != NOBODY && n != leader && HAS(up, n) ->                         /* n fetches: truncates, appends */
          d_step { if :: end[n] > end[leader] -> end[n] = end[leader] :: else fi;
                   if :: synced[n] > end[n] -> synced[n] = end[n] :: else fi;
                   if :: end[n] < end[leader] -> end[n]++ :: else fi }
      :: synced[n] < end[n] && HAS(up, n) -> synced[n] = end[n]                    /* a flush */
      :: leader == n ->                                                           /* the high watermark moves */
          d_step {
            all_hold = true; i = 0;
            do :: i < N -> if :: HAS(isr, i) && end[i] <= acked -> all_hold = false :: else fi; i++ :: else -> break od;
            size_of(isr);
#ifdef BUG_MIN
            if :: all_hold -> acked++ :: else fi;
#else
            if :: all_hold && size >= MIN -> acked++ :: else fi;
#endif
            all_hold = false; size = 0 }
      :: leader != NOBODY && HAS(up, n) && !HAS(isr, n) && end[n] >= end[leader] && end[n] >= acked ->  /* joins the ISR */
          d_step { isr = isr | (1 << n); elr = elr & ~(1 << n); lost_power = lost_power & ~(1 << n); elect() }
      :: HAS(up, n) ->                                                            /* a clean stop: everything is synced */
          d_step { synced[n] = end[n]; up = up & ~(1 << n); fence(n); elect() }
      :: HAS(up, n) && unclean < UNCLEAN ->                                       /* a power cut */
          d_step { unclean++; end[n] = synced[n]; up = up & ~(1 << n); lost_power = lost_power | (1 << n);
                   fence(n); elect() }
      :: !HAS(up, n) ->                                                           /* it is back, and says how it stopped */
          d_step {
            up = up | (1 << n);
#ifndef BUG_UNCLEAN_STAYS
            if :: HAS(lost_power, n) -> elr = elr & ~(1 << n) :: else fi;
#endif
            elect() }
      :: else
      fi;
      n = 0 }
  od
}
