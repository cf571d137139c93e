// NetworkModel: how long a message takes between two ranks of a simulated run.
#pragma once
#include <cstdint>
#include <string>

#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// One kind of link: a message of b bytes takes alpha + b * beta on it where nothing else is there
// (Hockney 1994).
struct LinkModel {
  double alpha = 0;  // s
  double beta = 0;   // s per byte; 0: no limit
};

// Ranks are placed in nodes, in order, and nodes in racks. Messages between nodes pass the NIC of
// the sender's node, which sends one after the other, and that of the receiver's node, which
// receives one after the other. Between racks they also pass the uplink of one rack and the
// downlink of the other, each one at a time. Messages inside a node pass none of these.
struct NetworkModel {
  LinkModel link;     // between nodes, and the rate of their NICs
  double jitter = 0;  // s: exponential with this mean, added to each message's alpha
  double loss = 0;    // probability of a message that a role allows to be lost
  std::int32_t ranks_per_node = 1;
  LinkModel inside;                 // of a node
  std::int32_t nodes_per_rack = 0;  // 0: one rack
  LinkModel uplink;                 // of a rack, on top of `link`
  double control = 0;               // s: of each message of the control plane, which uses no NIC

  std::int32_t node_of(Rank rank) const { return rank / ranks_per_node; }
  std::int32_t rack_of(Rank rank) const {
    return nodes_per_rack > 0 ? node_of(rank) / nodes_per_rack : 0;
  }
};

// "alpha=50e-6,beta=8e-9,jitter=10e-6,loss=0.01,node=4,node-alpha=1e-6,node-beta=1e-10,rack=8,
// rack-alpha=5e-6,rack-beta=1e-9,control=25e-6": comma-separated, each at most once, times in
// seconds. Empty: messages take no time. Errors (bad_input) quote the term and give the expected
// form.
Expected<NetworkModel> parse_network(const std::string& spec);
// The text that parse_network() reads, without the keys that have their defaults.
std::string network_text(const NetworkModel& model);

}  // namespace grapevine
