#!/usr/bin/env bash
# Makes qdiscs.csv from the kernel's queue disciplines (Debian's package linux-source-6.12, unpacked):
#
#     ./table.sh LINUX > qdiscs.csv
set -euo pipefail
linux=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# edit FILE PATTERN TEXT: replaces what a pattern matches, and fails if nothing does.
edit() {
    python3 - "$@" <<'PYTHON'
import re, sys
path, pattern, text = sys.argv[1:]
source, count = re.subn(pattern, lambda _: text, open(path).read(), flags=re.S | re.M)
if not count: sys.exit(f"{path}: no {pattern}")
open(path, "w").write(source)
PYTHON
}

# build NAME QDISC: compiles $work/sch_QDISC.c.
build() {
    gcc -O1 -w -std=gnu11 -fgnu89-inline -Ulinux -D"${2^^}" -DOPS="${2}_qdisc_ops" -DSOURCE="\"$work/sch_$2.c\"" \
        -DPIE_SOURCE="\"$work/sch_pie.c\"" -I"$work/headers" -I"$linux/include" -I"$here" "$here/qdiscs.c" -lm -o "$work/$1"
}

# The headers that hold algorithms are the kernel's; kernel.h stands for the others.
mkdir -p "$work/headers/linux" "$work/headers/net"
: > "$work/headers/linux/const.h"
: > "$work/headers/linux/types.h"
for qdisc in drr codel fq_codel pie fq_pie cake; do
    cp "$linux/net/sched/sch_$qdisc.c" "$work"
done
for header in codel codel_impl codel_qdisc pie; do
    cp "$linux/include/net/$header.h" "$work"
done
for header in $(sed -n 's/^#include <\(.*\)>.*/\1/p' "$work"/*.[ch]); do
    mkdir -p "$work/headers/$(dirname "$header")"
    : > "$work/headers/$header"
done
mv "$work"/*.h "$work/headers/net"

build drr drr
build codel codel
build fq_codel fq_codel
build pie pie
# Here an empty new queue becomes an old one only if there are others; RFC 8290, section 4.2, has no such condition.
edit "$work/sch_fq_codel.c" ' && !list_empty\(&q->old_flows\)' ''
build fq_codel_rfc fq_codel
# The step of 0.02 at delays above 250 ms, and probabilities above 1, are not in RFC 8033.
edit "$work/sch_pie.c" '\tif \(qdelay > \(PSCHED_NS2TICKS\(250.*?;\n' ''
edit "$work/sch_pie.c" 'WRITE_ONCE\(vars->prob, vars->prob \+ delta\);' \
    'vars->prob += delta; if (delta > 0 && vars->prob > MAX_PROB) vars->prob = MAX_PROB;'
# FQ-PIE is compared without a burst allowance: Linux reduces it by the time between departures, here it falls with time.
edit "$work/headers/net/pie.h" '150 \* NSEC_PER_MSEC' 0
build fq_pie fq_pie
# The ACK filter and overheads, which read packets.
edit "$work/sch_cake.c" 'static struct iphdr \*cake_get_iphdr.*?(?=static u64 cake_ewma)' ''
edit "$work/sch_cake.c" 'static u32 cake_overhead.*?(?=static void cake_heap_swap)' ''
edit "$work/sch_cake.c" 'static u8 cake_handle_diffserv.*?(?=static struct cake_tin_data \*cake_select_tin)' ''
build cake cake
# Roots from 16 on are approximate, and quotients are rounded at random.
edit "$work/sch_cake.c" 'if \(vars->count < REC_INV_SQRT_CACHE\).*?cobalt_newton_step\(vars\);' \
    'vars->rec_inv_sqrt = vars->count < 2 ? ~0u : (u32)(4294967296.0 / __builtin_sqrt(vars->count));'
edit "$work/sch_cake.c" 'return \(q->flow_quantum \* quantum_div.*?>> 16;' 'return q->flow_quantum / host_load;'
# The heap of the longest queues goes on with the backlog of the wrong one, so that at times a shorter one loses a packet.
edit "$work/sch_cake.c" 'cake_heap_swap\(q, i, m\);\s*i = m;' 'cake_heap_swap(q, i, m); i = m; mb = cake_heap_get_backlog(q, i);'
build cake_exact cake

echo case,seed,flows,sent,dropped,delay,digest
for seed in 1 2; do
    for flows in 3 40; do
        "$work/drr" drr $seed 1000 $flows 20000 1000000
        "$work/cake_exact" cake $seed 1000 $flows 20000 100000000
        "$work/cake_exact" cake_ecn $seed 1000 $flows 20000 100000000 ecn
        "$work/cake_exact" cake_users $seed 1000 $flows 20000 100000000 users
        "$work/cake_exact" cake_diffserv4 $seed 1000 $flows 20000 100000000 tins
    done
    # With more flows queues are equally long now and then; which of them loses packets depends on the hash.
    for flows in 3 8; do
        "$work/fq_codel_rfc" fq_codel_overflow $seed 1300 $flows 20000 50 no_codel
        "$work/cake_exact" cake_overflow $seed 1000 $flows 20000 60000 no_blue
    done
done
for seed in 1 2 3 4; do
    "$work/codel" codel $seed 1000 4 60000 100000
    "$work/fq_codel" fq_codel $seed 1000 8 60000 100000
    "$work/cake" cake_rounded $seed 1000 8 60000 100000000
    "$work/pie" pie $seed 650 8 60000 1000 no_burst
    "$work/fq_pie" fq_pie $seed 650 8 60000 10000
done
