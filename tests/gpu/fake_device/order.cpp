#include "tests/gpu/fake_device/order.hpp"

#include <algorithm>
#include <iterator>

namespace grapevine::fake {
namespace {

constexpr std::size_t kMostViolations = 50;  // kept: one fault may cause thousands

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (std::size_t stream = 0; stream < other.size(); ++stream)
    clock[stream] = std::max(clock[stream], other[stream]);
}

bool contains(const Clock& clock, std::size_t stream, std::uint64_t time) {
  return (stream < clock.size() ? clock[stream] : 0) >= time;
}

// Of one more piece of the stream's work.
std::uint64_t advance(Clock& clock, std::size_t stream) {
  if (clock.size() <= stream) clock.resize(stream + 1);
  return ++clock[stream];
}

}  // namespace

Order& order() {
  static Order* const instance = new Order;  // blocks end after static objects do
  return *instance;
}

std::size_t Order::stream(StreamKey key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [found, fresh] = streams_.try_emplace(key, clocks_.size());
  if (fresh) {
    clocks_.emplace_back();
    free_at_.push_back(0);
    names_.push_back("device " + std::to_string(key.device) + ", " +
                     (key.id == 0 ? "default stream" : "stream " + std::to_string(key.id)));
  }
  return found->second;
}

void Order::name(StreamKey key, const std::string& name) {
  const std::size_t index = stream(key);
  const std::lock_guard<std::mutex> lock(mutex_);
  names_[index] = "device " + std::to_string(key.device) + ", " + name;
}

bool Order::covers(std::size_t stream, const History::Use& use) {
  return use.time == 0 || use.stream == stream || contains(clocks_[stream], use.stream, use.time) ||
         contains(host_, use.stream, use.time);
}

void Order::check(const std::string& operation, std::size_t stream, const Access& now,
                  const History::Use& before, const char* what) {
  const bool apart = before.end <= now.begin || now.end <= before.begin;
  if (apart || covers(stream, before) || violations_.size() >= kMostViolations) return;
  violations_.push_back("'" + operation + "' in " + names_[stream] + " " + what + " '" +
                        before.operation + "' in " + names_[before.stream] +
                        ", for which it has not waited (" + std::to_string(now.block->bytes) +
                        " bytes)");
}

namespace {

// `use` as the last one of its stream, and for the bytes of those before it as well.
void note(std::map<std::size_t, History::Use>& uses, History::Use use) {
  const auto [found, fresh] = uses.try_emplace(use.stream, use);
  if (fresh) return;
  use.begin = std::min(use.begin, found->second.begin);
  use.end = std::max(use.end, found->second.end);
  found->second = use;
}

// Those that are overwritten: work that waits for the writer waits for them.
void forget_within(std::map<std::size_t, History::Use>& uses, const Access& written) {
  for (auto each = uses.begin(); each != uses.end();)
    each = each->second.begin >= written.begin && each->second.end <= written.end ? uses.erase(each)
                                                                                  : std::next(each);
}

}  // namespace

std::uint64_t Order::run(const std::string& operation, std::size_t stream,
                         const std::vector<Access>& reads, const std::vector<Access>& writes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++calls_[operation];
  join(clocks_[stream], host_);
  for (const auto* accesses : {&reads, &writes})
    for (const Access& each : *accesses)
      if (!each.block->has_home) allocate_in(*each.block, stream);
  const std::uint64_t time = advance(clocks_[stream], stream);
  const auto duration = durations_.find(operation);
  free_at_[stream] = std::max(free_at_[stream], host_time_) +
                     (duration == durations_.end() ? 0 : duration->second);
  for (const auto* accesses : {&reads, &writes}) {
    const bool overwrites = accesses == &writes;
    const char* const what =
        overwrites ? "overwrites what was written by" : "reads what was written by";
    for (const Access& each : *accesses) {
      for (const auto& [writer, write] : each.block->writes)
        check(operation, stream, each, write, what);
      if (!overwrites) continue;
      for (const auto& [reader, read] : each.block->reads)
        check(operation, stream, each, read, "overwrites what is read by");
    }
  }
  const auto use_of = [&](const Access& each) {
    return History::Use{stream, time, operation, each.begin, each.end};
  };
  for (const Access& each : reads) {
    note(each.block->reads, use_of(each));
    each.block->uses[stream] = {stream, time, operation};
  }
  for (const Access& each : writes) {
    forget_within(each.block->writes, each);
    forget_within(each.block->reads, each);
    note(each.block->writes, use_of(each));
    each.block->write = each.block->uses[stream] = {stream, time, operation};
  }
  return time;
}

void Order::run_outside(const std::string& operation, const History* reads, const History* writes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto expect_known = [&](const History::Use& use, const char* what) {
    const bool known = use.time == 0 || contains(host_, use.stream, use.time);
    if (known || violations_.size() >= kMostViolations) return;
    violations_.push_back("'" + operation + "' " + what + " '" + use.operation + "' in " +
                          names_[use.stream] + ", for which the host has not waited");
  };
  if (reads != nullptr) expect_known(reads->write, "reads what was written by");
  if (writes == nullptr) return;
  for (const auto& [stream, use] : writes->uses) expect_known(use, "overwrites what is used by");
}

void Order::allocated(History& block, std::optional<std::size_t> stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stream) allocate_in(block, *stream);
}

void Order::allocate_in(History& block, std::size_t stream) {
  block.home = stream;
  block.has_home = true;
  join(clocks_[stream], host_);
  block.write = {stream, advance(clocks_[stream], stream), "allocation"};
  block.uses[stream] = block.write;
  block.writes = {{stream, block.write}};
}

void Order::freed(History& block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [stream, use] : block.uses)
    if (block.recorded.count(stream) == 0)
      check("the next owner of the memory", block.home, Access(&block), use,
            "overwrites what is used by");
}

void Order::record_stream(History& block, std::size_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (fault_ != Fault::allocator_is_not_told) block.recorded.insert(stream);
}

Clock Order::now(std::size_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  join(clocks_[stream], host_);
  return clocks_[stream];
}

void Order::wait(std::size_t stream, const Clock& event, double at) {
  const std::lock_guard<std::mutex> lock(mutex_);
  join(clocks_[stream], event);
  free_at_[stream] = std::max(free_at_[stream], at);
}

void Order::host_waits(const Clock& event, double at) {
  const std::lock_guard<std::mutex> lock(mutex_);
  join(host_, event);
  host_time_ = std::max(host_time_, at);
}

double Order::time_of(std::size_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::max(free_at_[stream], host_time_);
}

double Order::host_time() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return host_time_;
}

void Order::host_works(double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  host_time_ += seconds;
}

void Order::set_duration(const std::string& operation, double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  durations_[operation] = seconds;
}

bool Order::host_knows(const Clock& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t stream = 0; stream < event.size(); ++stream)
    if (!contains(host_, stream, event[stream])) return false;
  return true;
}

bool Order::host_knows(std::size_t stream, std::uint64_t time) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return contains(host_, stream, time);
}

void Order::violation(const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (violations_.size() < kMostViolations) violations_.push_back(what);
}

std::vector<std::string> Order::violations() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return violations_;
}

Traffic Order::traffic() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return traffic_;
}

std::uint64_t Order::calls(const std::string& operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = calls_.find(operation);
  return found == calls_.end() ? 0 : found->second;
}

void Order::count(const Traffic& copied) {
  const std::lock_guard<std::mutex> lock(mutex_);
  traffic_.up += copied.up;
  traffic_.down += copied.down;
  traffic_.across += copied.across;
  traffic_.up_in_place += copied.up_in_place;
}

Fault Order::fault() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return fault_;
}

void Order::set_fault(Fault fault) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fault_ = fault;
}

void Order::reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  violations_.clear();
  traffic_ = {};
  calls_.clear();
  durations_.clear();
  fault_ = Fault::none;
}

}  // namespace grapevine::fake
