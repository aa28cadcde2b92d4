// A queue discipline of Linux on a link of 8 Mbit/s, in user space and simulated time. `table.sh` compiles it for each one.
//
//     qdisc CASE SEED SCALE FLOWS PACKETS LIMIT [OPTION ...]
//
// prints a row of `../linux.rs`' table: case, seed, flows, packets sent and dropped, mean delay [ns], and a digest (FNV-1a) of what
// became of each packet when. Arrivals are those of `../link.rs`. LIMIT counts packets, for CAKE bytes. Options: ecn, no_codel,
// no_burst, no_blue, users, tins.
#include "kernel.h"
#include "uapi/linux/pkt_sched.h"
#ifdef CAKE
static const u8 DSCPS[] = {0, 8, 26, 46};
#define cake_handle_diffserv(skb, wash) DSCPS[(skb)->hash % 4]
#define cake_overhead(q, skb) qdisc_pkt_len(skb)
#define cake_ack_filter(q, flow) NULL
#endif
#ifdef FQ_PIE
#include PIE_SOURCE
#endif
#include SOURCE

#define NS_PER_BYTE 1000
static const u32 LENGTHS[] = {64, 200, 576, 1000, 1000, 1500, 1500, 1500};
static const u64 LOADS[] = {450, 630, 990, 1350, 1980};

// Packets that arrive in phases of different load, given in thousandths of the link's capacity.
static struct { u64 state, scale, load, left, time; u32 flows; } arrivals;
static u64 draw(u64 bound) {
	arrivals.state = arrivals.state * 6364136223846793005u + 1442695040888963407u;
	return (arrivals.state >> 33) % bound;
}
static struct sk_buff *next_arrival(u32 number) {
	struct sk_buff *skb = calloc(1, sizeof *skb);
	if (!arrivals.left) {
		arrivals.load = LOADS[draw(5)] * arrivals.scale / 1000;
		arrivals.left = 100 + draw(900);
	}
	arrivals.left--;
	arrivals.time += draw(2 * 917500000 / arrivals.load) / 1000 * 1000;
	skb->arrival = arrivals.time;
	skb->hash = draw(10) < 7 ? draw(arrivals.flows) : 0;
	skb->l4_hash = true;
	skb->host = skb->hash % 3 + 1;
	skb->len = skb->truesize = LENGTHS[draw(8)];
	qdisc_skb_cb(skb)->pkt_len = skb->len;
	skb->number = number;
#ifndef CAKE
	// The class or queue; in CAKE a priority selects a tin.
	skb->priority = 0x10000 | (skb->hash + 1);
#endif
	return skb;
}

static u64 sent, dropped, delays, digest = 0xcbf29ce484222325;
static void mix(u64 value, int bytes) {
	for (; bytes > 0; bytes--, value >>= 8) digest = (digest ^ (value & 0xff)) * 0x100000001b3;
}
static void note(int fate, u32 number) {
	mix(fate, 1);
	mix(now_ns, 8);
	mix(number, 4);
}
static void note_drop(struct sk_buff *skb) {
	dropped++;
	note(2, skb->number);
	free(skb);
}

static struct Qdisc *sch;
static u64 free_at;
static bool busy;
static void go_to(u64 time) {
	while (the_timer && the_timer->expires * NSEC_PER_MSEC <= time) {
		now_ns = the_timer->expires * NSEC_PER_MSEC;
		the_timer->function(the_timer);
	}
	now_ns = time;
}
static void serve(void) {
	struct sk_buff *skb = sch->ops->dequeue(sch);
	busy = skb != NULL;
	if (!busy) return;
	sent++;
	delays += now_ns - skb->arrival;
	note(skb->ce, skb->number);
	free_at = now_ns + skb->len * NS_PER_BYTE;
	free(skb);
}

static char **options;
static bool has(const char *name) {
	for (char **option = options; *option; option++)
		if (!strcmp(*option, name)) return true;
	return false;
}

static void configure(u32 limit) {
	sch->limit = limit;
#if defined DRR
	struct nlattr attr, *tca[TCA_RATE + 1] = {[TCA_OPTIONS] = &attr};
	for (u32 flow = 0; flow < arrivals.flows; flow++) {
		unsigned long class = 0;
		drr_change_class(sch, 0x10001 + flow, 0, tca, &class, NULL);
	}
#elif defined FQ_CODEL
	struct fq_codel_sched_data *q = qdisc_priv(sch);
	q->memory_limit = U32_MAX;
	q->cparams.ecn = has("ecn");
	if (has("no_codel")) q->cparams.target = q->cparams.interval = U32_MAX / 4;
#elif defined CODEL
	struct codel_sched_data *q = qdisc_priv(sch);
	q->params.ecn = has("ecn");
#elif defined PIE
	struct pie_sched_data *q = qdisc_priv(sch);
	if (has("no_burst")) q->vars.burst_time = 0;
#elif defined CAKE
	struct cake_sched_data *q = qdisc_priv(sch);
	q->tin_mode = has("tins") ? CAKE_DIFFSERV_DIFFSERV4 : CAKE_DIFFSERV_BESTEFFORT;
	q->flow_mode = has("users") ? CAKE_FLOW_DUAL_DST : CAKE_FLOW_FLOWS;
	q->rate_flags &= ~CAKE_FLAG_INGRESS;
	cake_reconfigure(sch);
	q->buffer_limit = limit;
	// Targets and quanta of a shaper with the link's rate; the link, not the shaper, limits it.
	static const int SHARES[] = {0, 4, 1, 2};
	for (int tin = 0; tin < q->tin_cnt; tin++) {
		struct cake_tin_data *b = &q->tins[tin];
		cake_set_rate(b, (NSEC_PER_SEC / NS_PER_BYTE) >> SHARES[tin], 1514, us_to_ns(q->target), us_to_ns(q->interval));
		b->tin_rate_ns = 0;
		if (has("no_blue")) b->cparams.p_inc = 0;
		// 0 at first, as if `count` were infinite: the first signal of a queue that was never used comes an interval early.
		for (u32 i = 0; i < CAKE_QUEUES; i++) b->flows[i].cvars.rec_inv_sqrt = U32_MAX;
	}
#endif
}

int main(int argc, char **argv) {
	if (argc < 7) return 2;
	struct Qdisc_ops *ops = &OPS;
	struct sk_buff *freed = NULL;
	options = argv + 7;
	arrivals.state = random_state = atol(argv[2]);
	arrivals.scale = atol(argv[3]);
	arrivals.flows = atol(argv[4]);
	sch = calloc(1, sizeof *sch + ops->priv_size);
	sch->ops = ops;
	sch->handle = 0x10000;
	ops->init(sch, NULL, NULL);
	configure(atol(argv[6]));
	for (long i = 0; i < atol(argv[5]); i++) {
		struct sk_buff *skb = next_arrival(i);
		u64 time = skb->arrival;
		while (busy && free_at <= time) go_to(free_at), serve();
		go_to(time);
		skb->ecn = has("ecn");
		ops->enqueue(skb, sch, &freed);
		if (!busy) serve();
	}
	while (busy) go_to(free_at), serve();
	printf("%s,%s,%s,%lu,%lu,%.0f,%016lx\n", argv[1], argv[2], argv[4], sent, dropped, (double)delays / sent, digest);
}
