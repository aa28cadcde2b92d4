// Interfaces of the kernel that sch_drr, sch_codel, sch_fq_codel, sch_pie, sch_fq_pie and sch_cake use, as far as `qdiscs.c`
// needs them: one thread, simulated time, packets without contents, no netlink.
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8, __u8;
typedef uint16_t u16, __u16, __be16, __sum16;
typedef uint32_t u32, __u32, __be32, __wsum;
typedef uint64_t u64, __u64;
typedef int8_t s8, __s8;
typedef int16_t s16;
typedef int32_t s32, __s32;
typedef int64_t s64, __s64, ktime_t;
typedef u64 psched_time_t;
typedef long psched_tdiff_t;
typedef u64 netdev_features_t;

#define __rcu
#define __init
#define __exit
#define __read_mostly
#define __maybe_unused __attribute__((unused))
#define __always_inline inline
#define noinline
#define fallthrough
#define likely(x) (x)
#define unlikely(x) (x)
#define WARN_ON(x) ((void)(x))
#define WARN_ONCE(x, ...) ((void)(x))
#define BUILD_BUG_ON(x) ((void)sizeof(x))
#define READ_ONCE(x) (x)
#define WRITE_ONCE(x, y) ((x) = (y))
#define IS_ENABLED(x) 0
#define THIS_MODULE 0
#define MODULE_AUTHOR(x)
#define MODULE_LICENSE(x)
#define MODULE_DESCRIPTION(x)
#define MODULE_ALIAS_NET_SCH(x)
#define EXPORT_SYMBOL_GPL(x)
#define module_init(x)
#define module_exit(x)
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define min_t(t, a, b) ((t)(a) < (t)(b) ? (t)(a) : (t)(b))
#define max_t(t, a, b) ((t)(a) > (t)(b) ? (t)(a) : (t)(b))
#define typecheck(t, x) 1
#define nla_for_each_nested(...) for (;0;)
#define hlist_for_each_entry_safe(p, n, head, member) for (p = NULL; p;)
#define clamp_t(t, x, a, b) min_t(t, max_t(t, x, a), b)
#define clamp(x, a, b) min(max(x, a), b)
#define swap(a, b) do { typeof(a) t_ = (a); (a) = (b); (b) = t_; } while (0)
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define BIT(n) (1UL << (n))
#define DIV_ROUND_UP(a, b) (((a) + (b) - 1) / (b))
#define BITS_PER_BYTE 8
enum { ENOENT = 2, ENOMEM = 12, EBUSY = 16, EINVAL = 22, EMSGSIZE = 90, EOPNOTSUPP = 95, ENOBUFS = 105 };
enum { TCA_OPTIONS = 2, TCA_RATE = 5 };
#define U8_MAX 255
#define U32_MAX UINT32_MAX
#define U64_MAX UINT64_MAX
#define SZ_32M (32 << 20)
#define NSEC_PER_SEC 1000000000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_USEC 1000L
#define USEC_PER_MSEC 1000L
#define USEC_PER_SEC 1000000L
#define MSEC_PER_SEC 1000L
#define PAGE_SIZE 4096
#define GFP_KERNEL 0
#define __GFP_NOWARN 0
#define HZ 1000

static inline u64 div_u64(u64 a, u32 b) { return a / b; }
static inline u64 div64_u64(u64 a, u64 b) { return a / b; }
#define do_div(n, base) ({ u32 r_ = (n) % (base); (n) = (n) / (base); r_; })
static inline u32 reciprocal_scale(u32 value, u32 ends) { return (u32)(((u64)value * ends) >> 32); }
#define kzalloc(n, f) calloc(1, n)
#define kvzalloc(n, f) calloc(1, n)
#define kvcalloc(n, s, f) calloc(n, s)
#define kvmalloc_array(n, s, f) malloc((n) * (s))
#define kfree free
#define kvfree free

// Time and randomness.
static u64 now_ns;
static u64 random_state;
static u32 get_random_u32(void) {
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return random_state >> 32;
}
static u16 get_random_u16(void) { return get_random_u32() >> 16; }
static void get_random_bytes(void *to, int n) {
	for (int i = 0; i < n; i++) ((u8 *)to)[i] = get_random_u32() >> 24;
}
static ktime_t ktime_get(void) { return now_ns; }
static u64 ktime_get_ns(void) { return now_ns; }
#define jiffies (now_ns / 1000000)
#define usecs_to_jiffies(us) ((us) / 1000)
#define jiffies_to_usecs(j) ((j) * 1000)
#define ktime_to_ns(t) ((s64)(t))
#define ns_to_ktime(t) ((ktime_t)(t))
#define us_to_ktime(t) ((ktime_t)(t) * 1000)
#define ktime_to_us(t) ((t) / 1000)
#define ktime_sub(a, b) ((ktime_t)((a) - (b)))
#define ktime_add_ns(a, b) ((ktime_t)((a) + (b)))
#define ktime_add_ms(a, b) ((ktime_t)((a) + (b) * 1000000))
#define ktime_before(a, b) ((s64)(a) < (s64)(b))
#define ktime_after(a, b) ((s64)(a) > (s64)(b))
#define ktime_compare(a, b) (((s64)(a) > (s64)(b)) - ((s64)(a) < (s64)(b)))
#define KTIME_MAX INT64_MAX
struct timer_list { void (*function)(struct timer_list *); unsigned long expires; };
static struct timer_list *the_timer;
static void timer_setup(struct timer_list *t, void (*f)(struct timer_list *), int flags) { t->function = f; }
static void mod_timer(struct timer_list *t, unsigned long expires) { t->expires = expires; the_timer = t; }
#define from_timer(var, t, member) container_of(t, typeof(*var), member)
#define del_timer_sync(t) 0
#define rcu_read_lock()
#define rcu_read_unlock()
#define rcu_dereference_bh(x) (x)
typedef int spinlock_t;
#define spin_lock(x) ((void)(x))
#define spin_unlock(x) ((void)(x))
#define sch_tree_lock(s)
#define sch_tree_unlock(s)
#define local_bh_disable()
#define local_bh_enable()

struct list_head { struct list_head *next, *prev; };
struct hlist_node { struct hlist_node *next; };
struct hlist_head { struct hlist_node *first; };
#define INIT_LIST_HEAD(l) ((l)->next = (l)->prev = (l))
#define LIST_HEAD(l) struct list_head l = {&l, &l}
static bool list_empty(const struct list_head *l) { return l->next == l; }
static void list_add_tail(struct list_head *n, struct list_head *l) {
	n->prev = l->prev; n->next = l; l->prev->next = n; l->prev = n;
}
static void list_add(struct list_head *n, struct list_head *l) { list_add_tail(n, l->next); }
static void list_del(struct list_head *n) { n->prev->next = n->next; n->next->prev = n->prev; }
static void list_del_init(struct list_head *n) { list_del(n); INIT_LIST_HEAD(n); }
static void list_move_tail(struct list_head *n, struct list_head *l) { list_del(n); list_add_tail(n, l); }
#define list_first_entry(l, type, member) container_of((l)->next, type, member)
#define list_for_each(p, l) for (p = (l)->next; p != (l); p = p->next)
#define hlist_for_each_entry(p, head, member) for (p = NULL; p;)

struct sk_buff {
	struct sk_buff *next, *prev;
	unsigned int len, truesize;
	u32 priority, mark, hash;
	bool l4_hash;
	int end;
	char cb[48];
	// Of `qdiscs.c`.
	u32 number, host;
	u64 arrival;
	bool ecn, ce;
};
struct qdisc_skb_cb { struct { unsigned int pkt_len; u16 a, b; }; unsigned char data[20]; };
static struct qdisc_skb_cb *qdisc_skb_cb(const struct sk_buff *skb) { return (struct qdisc_skb_cb *)skb->cb; }
#define qdisc_cb_private_validate(skb, n)
static unsigned int qdisc_pkt_len(const struct sk_buff *skb) { return qdisc_skb_cb(skb)->pkt_len; }
#define skb_mark_not_on_list(skb) ((skb)->next = NULL)
static bool INET_ECN_set_ce(struct sk_buff *skb) { skb->ce |= skb->ecn; return skb->ecn; }
static bool INET_ECN_set_ect1(struct sk_buff *skb) { return false; }
static bool skb_is_gso(const struct sk_buff *skb) { return false; }

#define prefetch(x)
#define skb_get_dsfield(skb) 0
#define INET_ECN_MASK 3
#define INET_ECN_ECT_1 1
#define skb_peek(q) NULL
#define __skb_queue_head(q, skb)
#define NETIF_F_GSO_MASK 0
#define netif_skb_features(s) 0
#define skb_gso_segment(s, f) NULL
#define IS_ERR_OR_NULL(x) 1
#define skb_list_walk_safe(a, b, c) for (; 0;)
struct flow_keys {
	struct { int addr_type; } control;
	struct { struct { u32 src, dst; } v4addrs; struct { u32 src, dst; } v6addrs; } addrs;
	struct { u32 ports; u16 src, dst; } ports;
	struct { int ip_proto; } basic;
	struct { int keyid; } keyid;
	struct { int flow_label; } tags;
};
enum { FLOW_DISSECTOR_KEY_IPV4_ADDRS, FLOW_DISSECTOR_KEY_IPV6_ADDRS };
#define FLOW_DISSECTOR_F_STOP_AT_FLOW_LABEL 0
#define skb_flow_dissect_flow_keys(skb, k, f) (memset(k, 0, sizeof *(k)), (k)->addrs.v4addrs.dst = (skb)->host)
static u32 flow_hash_from_keys(struct flow_keys *k) { return k->addrs.v4addrs.dst; }
// `qdiscs.c` records what happens to packets.
static void note_drop(struct sk_buff *skb);
#define kfree_skb(skb) note_drop(skb)
#define consume_skb(skb) note_drop(skb)
#define rtnl_kfree_skbs(a, b) ((void)0)
#define rtnl_qdisc_drop(skb, sch) note_drop(skb)
static void __qdisc_drop(struct sk_buff *skb, struct sk_buff **to_free) { note_drop(skb); }

enum { NET_XMIT_SUCCESS, NET_XMIT_DROP, NET_XMIT_CN };
#define __NET_XMIT_STOLEN 0x10000
#define __NET_XMIT_BYPASS 0x20000
#define net_xmit_drop_count(e) ((e) == NET_XMIT_DROP)
struct gnet_stats_queue { u32 qlen, backlog, drops, requeues, overlimits; };
struct gnet_stats_basic_sync { u64 bytes, packets; };
struct gnet_dump { int a; };
struct net_rate_estimator;
struct Qdisc_ops;
struct Qdisc {
	const struct Qdisc_ops *ops;
	u32 flags, limit, handle, parent;
	struct { struct sk_buff *head, *tail; u32 qlen; } q;
	struct gnet_stats_queue qstats;
	struct gnet_stats_basic_sync bstats;
	struct { u32 qlen; } gso_skb;
	void *dev_queue, *cpu_qstats;
	long priv[];
};
#define TCQ_F_CAN_BYPASS 4
struct netlink_ext_ack { int a; };
struct tcf_block { int a; };
struct tcf_proto { int a; };
struct tcf_result { unsigned long class; u32 classid; };
struct nlattr { int a; };
struct tcmsg { u32 tcm_parent, tcm_handle, tcm_info; };
struct qdisc_walker { int stop, skip, count; int (*fn)(struct Qdisc *, unsigned long, struct qdisc_walker *); };
struct Qdisc_class_ops { void *leaf, *find, *tcf_block, *bind_tcf, *unbind_tcf, *dump, *dump_stats, *walk, *change, *delete, *graft, *qlen_notify; };
struct Qdisc_ops {
	const struct Qdisc_class_ops *cl_ops;
	char id[16];
	int priv_size;
	int (*enqueue)(struct sk_buff *, struct Qdisc *, struct sk_buff **);
	struct sk_buff *(*dequeue)(struct Qdisc *);
	struct sk_buff *(*peek)(struct Qdisc *);
	int (*init)(struct Qdisc *, struct nlattr *, struct netlink_ext_ack *);
	void (*reset)(struct Qdisc *);
	void (*destroy)(struct Qdisc *);
	int (*change)(struct Qdisc *, struct nlattr *, struct netlink_ext_ack *);
	void *attach, *dump, *dump_stats, *change_tx_queue_len, *owner;
};
#define qdisc_priv(s) ((void *)(s)->priv)
static u32 qdisc_qlen(const struct Qdisc *s) { return s->q.qlen; }
#define qdisc_qlen_sum(s) qdisc_qlen(s)
#define qdisc_dev(s) NULL
#define psched_mtu(d) 1514
#define qdisc_lock(s) 0
#define qdisc_root_sleeping(s) s
#define qdisc_warn_nonwc(a, b)
#define qdisc_hash_add(a, b)
#define qdisc_put(a)
#define qdisc_reset(a)
#define qdisc_purge_queue(a)
#define qdisc_replace(a, b, c) NULL
#define qdisc_watchdog_schedule_ns(w, t)
#define qdisc_watchdog_init(w, s)
#define qdisc_watchdog_cancel(w)
#define qdisc_reset_queue(s)
#define qdisc_tree_reduce_backlog(s, a, b)
#define qdisc_peek_dequeued NULL
#define qdisc_bstats_update(s, skb)
#define bstats_update(s, skb)
#define qdisc_qstats_drop(s) ((s)->qstats.drops++)
#define __qdisc_qstats_drop(s, n) ((s)->qstats.drops += (n))
#define qdisc_qstats_overlimit(s)
#define qdisc_qstats_backlog_inc(s, skb) ((s)->qstats.backlog += qdisc_pkt_len(skb))
#define qdisc_qstats_backlog_dec(s, skb) ((s)->qstats.backlog -= qdisc_pkt_len(skb))
struct qdisc_watchdog { int a; };
static int qdisc_drop(struct sk_buff *skb, struct Qdisc *s, struct sk_buff **to_free) {
	note_drop(skb);
	s->qstats.drops++;
	return NET_XMIT_DROP;
}
static int qdisc_enqueue_tail(struct sk_buff *skb, struct Qdisc *s) {
	skb->next = NULL;
	if (s->q.head) s->q.tail->next = skb; else s->q.head = skb;
	s->q.tail = skb;
	s->q.qlen++;
	s->qstats.backlog += qdisc_pkt_len(skb);
	return NET_XMIT_SUCCESS;
}
static struct sk_buff *__qdisc_dequeue_head(void *queue) {
	typeof(((struct Qdisc *)0)->q) *q = queue;
	struct sk_buff *skb = q->head;
	if (skb) { q->head = skb->next; q->qlen--; skb->next = NULL; }
	return skb;
}
static struct sk_buff *qdisc_dequeue_head(struct Qdisc *s) {
	struct sk_buff *skb = __qdisc_dequeue_head(&s->q);
	if (skb) s->qstats.backlog -= qdisc_pkt_len(skb);
	return skb;
}
// The fifo of a class of DRR.
static int fifo_enqueue(struct sk_buff *skb, struct Qdisc *s, struct sk_buff **to_free) { return qdisc_enqueue_tail(skb, s); }
static struct sk_buff *fifo_peek(struct Qdisc *s) { return s->q.head; }
static struct Qdisc_ops pfifo_qdisc_ops = {.enqueue = fifo_enqueue, .peek = fifo_peek};
static struct Qdisc noop_qdisc;
#define qdisc_dequeue_peeked(s) qdisc_dequeue_head(s)
static int qdisc_enqueue(struct sk_buff *skb, struct Qdisc *s, struct sk_buff **to_free) { return s->ops->enqueue(skb, s, to_free); }
static struct Qdisc *qdisc_create_dflt(void *dev, struct Qdisc_ops *ops, u32 id, void *e) {
	struct Qdisc *s = calloc(1, sizeof(*s) + 64);
	s->ops = ops;
	return s;
}
struct Qdisc_class_common { u32 classid; struct hlist_node hnode; };
struct Qdisc_class_hash { struct hlist_head *hash; u32 hashsize, count; struct Qdisc_class_common *all[1024]; };
#define qdisc_class_hash_init(h) 0
#define qdisc_class_hash_destroy(h)
#define qdisc_class_hash_grow(s, h)
#define qdisc_class_hash_remove(h, c)
static void qdisc_class_hash_insert(struct Qdisc_class_hash *h, struct Qdisc_class_common *c) { h->all[h->count++] = c; }
static struct Qdisc_class_common *qdisc_class_find(const struct Qdisc_class_hash *h, u32 id) {
	for (u32 i = 0; i < h->count; i++)
		if (h->all[i]->classid == id) return h->all[i];
	return NULL;
}
#define qdisc_class_get(c)
#define qdisc_class_put(c)
#define qdisc_dequeue_internal(s, d) qdisc_dequeue_head(s)
#define qdisc_class_in_use(c) 0
#define tc_qdisc_stats_dump(s, c, a) 0

#define TC_H_MAJ(h) ((h) & 0xFFFF0000U)
#define TC_H_MIN(h) ((h) & 0x0000FFFFU)
#define tcf_block_get(...) 0
#define tcf_block_put(x)
#define tcf_classify(...) (-1)
#define tcf_classify_qdisc(...) (-1)
static u32 skb_get_hash(const struct sk_buff *skb) { return skb->hash; }
#define PSCHED_SHIFT 6
#define PSCHED_TICKS2NS(x) ((s64)(x) << PSCHED_SHIFT)
#define PSCHED_NS2TICKS(x) ((x) >> PSCHED_SHIFT)
#define PSCHED_TICKS_PER_SEC PSCHED_NS2TICKS(NSEC_PER_SEC)
static psched_time_t psched_get_time(void) { return PSCHED_NS2TICKS(now_ns); }

// Netlink: nothing is asked.
struct nla_policy { int type, min, max, strict_start_type, len; };
struct netlink_range_validation { u64 min, max; };
#define NLA_POLICY_FULL_RANGE(t, r) {.type = t}
enum { NLA_U8, NLA_U16, NLA_U32, NLA_U64, NLA_S32, NLA_FLAG };
#define NLA_POLICY_MIN(t, a) {.type = t}
#define NLA_POLICY_MAX(t, a) {.type = t}
#define NLA_POLICY_RANGE(t, a, b) {.type = t}
#define NL_SET_ERR_MSG(a, b)
#define NL_SET_ERR_MSG_MOD(a, b)
#define NL_SET_ERR_MSG_ATTR(a, b, c)
#define nla_parse_nested_deprecated(...) 0
#define nla_parse_nested(...) 0
#define nla_get_u8(a) 0
#define nla_get_u32(a) 0
#define nla_get_s32(a) 0
#define nla_get_u64(a) 0
#define nla_nest_start_noflag(...) NULL
#define nla_nest_start(...) NULL
#define nla_nest_end(...) 0
#define nla_nest_cancel(...)
#define nla_put_u32(...) 0
#define nla_put_s32(...) 0
#define nla_put_u8(...) 0
#define nla_put_u64_64bit(...) 0
#define nla_put_flag(...) 0
#define nla_put_failure nla_put_failure
#define gnet_stats_copy_app(...) 0
#define gnet_stats_copy_queue(...) 0
#define gnet_stats_copy_basic(...) 0
#define gnet_stats_copy_rate_est(...) 0
#define gnet_stats_basic_sync_init(a)
#define gen_replace_estimator(...) 0
#define gen_kill_estimator(a)
#define register_qdisc(a) 0
#define unregister_qdisc(a)
