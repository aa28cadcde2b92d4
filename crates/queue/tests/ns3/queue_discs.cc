// Queue discs of ns-3.37 on a link of 8 Mbit/s (Debian's package libns3-dev). From this folder:
//
//     g++ -std=c++17 queue_discs.cc -o /tmp/queue_discs -lns3-traffic-control -lns3-network -lns3-core
//     /tmp/queue_discs > queue_discs.csv
//
// Rows: case, seed, and for FQ-CoDel every packet sent or dropped and for COBALT the first drops (kind, time [ns], number
// of the packet); for PIE the number of drops and the mean delay [ns]. `../ns3.rs` makes the same arrivals.
#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/traffic-control-module.h"
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

using namespace ns3;

constexpr uint64_t NS_PER_BYTE = 1000;
constexpr uint32_t LENGTHS[] = {64, 200, 576, 1000, 1000, 1500, 1500, 1500};
constexpr uint64_t LOADS[] = {450, 630, 990, 1350, 1980};

class Item : public QueueDiscItem {
public:
  Item(Ptr<Packet> packet, uint32_t flow) : QueueDiscItem(packet, Address(), 0), m_flow(flow) {}
  void AddHeader() override {}
  bool Mark() override { return false; }
  uint32_t Hash(uint32_t) const override { return m_flow; }

private:
  uint32_t m_flow;
};

// Packets that arrive in phases of different load, given in thousandths of the link's capacity.
class Arrivals {
public:
  Arrivals(uint64_t seed, uint64_t scale, uint32_t flows) : m_state(seed), m_scale(scale), m_flows(flows) {}
  void Next(uint64_t &time, uint32_t &flow, uint32_t &length) {
    if (m_left == 0) {
      m_load = LOADS[Draw(5)] * m_scale / 1000;
      m_left = 100 + Draw(900);
    }
    m_left--;
    m_time += Draw(2 * 917'500'000 / m_load) / 1000 * 1000;
    time = m_time;
    flow = Draw(10) < 7 ? Draw(m_flows) : 0;
    length = LENGTHS[Draw(8)];
  }

private:
  uint64_t Draw(uint64_t bound) {
    m_state = m_state * 6364136223846793005u + 1442695040888963407u;
    return (m_state >> 33) % bound;
  }
  uint64_t m_state, m_scale, m_load = 0, m_left = 0, m_time = 0;
  uint32_t m_flows;
};

struct Link {
  Ptr<QueueDisc> disc;
  std::string name;
  uint64_t seed;
  uint32_t listed;
  bool departures;
  bool busy = false;
  uint32_t number = 0, drops = 0, sent = 0;
  double delays = 0;
  std::map<uint64_t, std::pair<uint32_t, uint64_t>> packets;

  void Row(const char *kind, uint32_t packet) {
    if (listed > 0) {
      listed--;
      printf("%s,%lu,%s,%lu,%u\n", name.c_str(), seed, kind, Simulator::Now().GetNanoSeconds(), packet);
    }
  }
  void Dropped(Ptr<const QueueDiscItem> item) {
    drops++;
    Row("dropped", packets[item->GetPacket()->GetUid()].first);
  }
  void Serve() {
    Ptr<QueueDiscItem> item = disc->Dequeue();
    busy = item != nullptr;
    if (!busy) return;
    auto [packet, arrival] = packets[item->GetPacket()->GetUid()];
    sent++;
    delays += Simulator::Now().GetNanoSeconds() - arrival;
    if (departures) Row("sent", packet);
    Simulator::Schedule(NanoSeconds(item->GetPacket()->GetSize() * NS_PER_BYTE), &Link::Serve, this);
  }
  void Arrive(uint32_t flow, uint32_t length) {
    Ptr<Packet> packet = Create<Packet>(length);
    packets[packet->GetUid()] = {number++, Simulator::Now().GetNanoSeconds()};
    disc->Enqueue(Create<Item>(packet, flow));
    if (!busy) Serve();
  }
};

static Link *g_link;
static void Dropped(Ptr<const QueueDiscItem> item) { g_link->Dropped(item); }

static void Run(std::string name, ObjectFactory factory, uint64_t seed, uint64_t scale, uint32_t flows, uint32_t packets, uint32_t listed) {
  Link link{factory.Create<QueueDisc>(), name, seed, listed, name == "fq_codel"};
  g_link = &link;
  if (auto fq = DynamicCast<FqCoDelQueueDisc>(link.disc)) fq->SetQuantum(1514);
  link.disc->TraceConnectWithoutContext("Drop", MakeCallback(&Dropped));
  link.disc->Initialize();
  Arrivals arrivals(seed, scale, flows);
  for (uint32_t i = 0; i < packets; i++) {
    uint64_t time;
    uint32_t flow, length;
    arrivals.Next(time, flow, length);
    Simulator::Schedule(NanoSeconds(time), &Link::Arrive, &link, flow, length);
  }
  Simulator::Stop(Seconds(1000));
  Simulator::Run();
  if (name == "pie") printf("pie,%lu,total,%u,%.0f\n", seed, link.drops, link.delays / link.sent);
  Simulator::Destroy();
}

int main() {
  printf("case,seed,kind,time,packet\n");
  ObjectFactory codel("ns3::FqCoDelQueueDisc", "MaxSize", StringValue("50p"), "Target", StringValue("500s"), "Interval", StringValue("1000s"));
  Run("fq_codel", codel, 1, 1300, 3, 700, 700);
  // sch_cake's target is at least four times the time of a packet of 1514 bytes; it has no threshold of BLUE.
  ObjectFactory cobalt("ns3::CobaltQueueDisc", "MaxSize", StringValue("100000p"), "Target", StringValue("6056us"), "BlueThreshold", StringValue("10000s"));
  for (uint64_t seed = 1; seed <= 3; seed++) Run("cobalt", cobalt, seed, 1000, 1, 5000, 9);
  ObjectFactory pie("ns3::PieQueueDisc", "MaxSize", StringValue("1000p"), "UseDerandomization", BooleanValue(true), "UseCapDropAdjustment",
                    BooleanValue(true), "MaxBurstAllowance", StringValue("0ms"));
  for (uint64_t seed = 1; seed <= 8; seed++) Run("pie", pie, seed, 1000, 8, 60000, 0);
}
