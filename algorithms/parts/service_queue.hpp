// ServiceQueue and CriticalSections: the clients that wait for a parameter server, and the clients
// between pull and commit.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/env.hpp"

namespace grapevine {

// The list `name` of rows of `columns` numbers, one after the other; the first number of a row is
// one of the `clients` (ascending), and no other row's. Errors (bad_input): it is not.
void client_rows(Archive& a, const std::string& name, std::vector<std::int64_t>& rows,
                 std::size_t columns, const std::vector<Rank>& clients);

struct ServiceRequest {
  std::int64_t exchange = 0;
  std::int64_t arrival = 0;
  Timestamp since{0};
  Rank client = 0;
  Stamp stamp;
  std::int64_t gradients = 0;
  FrozenTensor update;  // empty: asks for a grant
};

// First come, first served. Not thread-safe.
class ServiceQueue {
 public:
  // Appends the request and numbers it by arrival. A second request of a waiting client is a broken
  // invariant.
  void push(ServiceRequest request);
  ServiceRequest pop();  // REQUIRES: !empty()
  std::vector<ServiceRequest> take_all();
  void remove(Rank client);
  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }
  // Waiting times count from `now`.
  void restart(Timestamp now);

  // `offered`: elements of each update; none: the requests ask for grants. `clients`: the ranks
  // that may wait, ascending. Errors (bad_input): entries that are missing or damaged, a rank that
  // is not a client, a client twice.
  void fields(Archive& a, std::optional<std::int64_t> offered, const std::vector<Rank>& clients);

 private:
  std::deque<ServiceRequest> waiting_;
  std::int64_t arrivals_ = 0;
};

// Open grants, at most one for each client. Not thread-safe.
class CriticalSections {
 public:
  // Returns the number of the grant.
  TimerId open(Rank client, std::int64_t exchange);
  bool is_open(Rank client, std::int64_t exchange) const;
  bool is_open(Rank client) const { return open_.count(client) > 0; }
  void close(Rank client) { open_.erase(client); }
  bool empty() const { return open_.empty(); }
  // The client that holds the grant; none once it is closed.
  std::optional<Rank> holder(TimerId grant) const;
  std::vector<TimerId> grants() const;
  // All of them, with the exchange that each grant is for.
  std::map<Rank, std::int64_t> holders() const;

  // `clients`: the ranks that may hold a grant, ascending. Errors (bad_input): entries that are
  // missing or damaged, a rank that is not a client, a client twice.
  void fields(Archive& a, const std::vector<Rank>& clients);

 private:
  struct Section {
    std::int64_t exchange = 0;
    TimerId grant = 0;
  };

  std::map<Rank, Section> open_;  // by client
  TimerId grants_ = 0;            // so far
};

}  // namespace grapevine
