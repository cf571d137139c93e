// What the sources of Engine share: its links, and the messages in flight. Compiled only with UCX.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/ucx/ucx_engine.hpp"

namespace grapevine::ucx {

inline constexpr unsigned kMessageId = 0;  // of the only kind of active message

inline ucs_memory_type_t memory_type(DeviceMemory::Kind kind) {
  return kind == DeviceMemory::Kind::cuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

bool is_running(std::int32_t pid);

// Data that a process of this host was sent over shared memory and has not fetched, e.g. because it
// is suspended. It must find these bytes when it continues, also after the link was closed.
class LeftForPeers {
 public:
  void add(std::int32_t pid, std::vector<FrozenTensor> payload) {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_.erase(std::remove_if(left_.begin(), left_.end(),
                               [](const auto& entry) { return !is_running(entry.first); }),
                left_.end());
    if (is_running(pid)) left_.emplace_back(pid, std::move(payload));
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::int32_t, std::vector<FrozenTensor>>> left_;  // guarded by mutex_
};
LeftForPeers& left_for_peers();

// The bytes of some tensors, as UCX takes them: one buffer (or none) as itself, more as a list.
class Buffers {
 public:
  void add(void* bytes, std::size_t size) {
    if (size > 0) parts_.push_back({bytes, size});
  }
  void clear() { parts_.clear(); }
  void* pointer() {
    if (is_list()) return parts_.data();
    return parts_.empty() ? nullptr : parts_[0].buffer;
  }
  std::size_t count() const {
    if (is_list()) return parts_.size();
    return parts_.empty() ? 0 : parts_[0].length;
  }
  ucp_datatype_t datatype() const { return is_list() ? ucp_dt_make_iov() : ucp_dt_make_contig(1); }

 private:
  bool is_list() const { return parts_.size() > 1; }

  std::vector<ucp_dt_iov_t> parts_;
};

struct Engine::Link {
  Engine* engine = nullptr;
  std::int32_t process = 0;
  std::string host;
  Address peer;
  bool same_host = false;
  ucp_ep_h endpoint = nullptr;

  bool open = true;             // until it says goodbye or is lost
  bool lost = false;            // without a goodbye
  bool skipped = false;         // the run lost it before it was connected
  bool expected = false;        // to return: its first hello has not come
  bool returns = false;         // its ProcessBack has not taken effect yet: it is not answered
  bool hello_received = false;  // its hello
  bool acknowledged = false;    // by it
  bool saw_all = false;         // it has answered our goodbye
  bool closing = false;         // the endpoint
  bool overwhelmed = false;     // its messages could not be processed
  std::string why;              // it was lost

  std::uint64_t next_out = 0;
  std::uint64_t next_in = 0;
  std::map<std::uint64_t, std::optional<Event>> waiting;  // by number; empty: still arriving
  std::deque<Receive*> announced;                         // rendezvous not begun yet
  int receiving = 0;                                      // rendezvous under way

  // Both ends have received the hello of the other.
  bool is_connected() const { return hello_received && acknowledged; }
  bool is_awaited() const { return !skipped && !is_connected(); }
  std::string name() const {
    return fmt::format("process {} (host '{}', pid {})", process, host, peer.pid);
  }
};

struct Engine::Send {
  Link* link = nullptr;
  std::vector<std::byte> header;  // UCX reads it until the send completes, and the payload
  std::vector<FrozenTensor> payload;
  std::uint64_t bytes = 0;  // of header and payload
  Buffers buffers;
  std::list<Send>::iterator self;
};

struct Engine::Receive {
  Engine* engine = nullptr;
  Link* link = nullptr;  // null: the link was lost, the message is dropped
  std::uint64_t number = 0;
  void* descriptor = nullptr;  // UCX's, of a rendezvous not begun yet
  DecodedHeader header;
  std::vector<at::Tensor> payload;
  bool on_device = false;  // the payload
  Buffers buffers;
  std::list<Receive>::iterator self;
};

template <class F>
void Engine::guard(Link* link, F f) noexcept {
  try {
    f();
  } catch (...) {  // no memory: the code below needs none
    overwhelmed_ = true;
    for (const auto& one : links_)
      if (one != nullptr && (link == nullptr || one.get() == link)) one->overwhelmed = true;
  }
}

}  // namespace grapevine::ucx
