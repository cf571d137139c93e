#include "apps/train/replicas/replica_greeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "actors/protocol/build_version.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

using namespace std::chrono_literals;

constexpr ReplicaClock::duration kDialPause = 50ms;

Error malformed() { return {Errc::protocol, "a malformed greeting came"}; }

// A text that were cut could equal another one.
template <std::size_t N>
std::array<char, N> characters(const std::string& text) {
  GRAPEVINE_CHECK(text.size() <= N, "room for ", N, " characters, and not for '", text, "'");
  std::array<char, N> made{};
  std::copy(text.begin(), text.end(), made.begin());
  return made;
}

template <std::size_t N>
std::string text_in(const std::array<char, N>& characters) {
  return {characters.data(), characters.size()};
}

template <class T>
bool read_greeting(const shm::Packet& packet, std::size_t descriptors, T& value) {
  return packet.descriptors.size() == descriptors && shm::read_as(packet, value);
}

std::string proof_of(const char* side, const ReplicaWorker& own, const ReplicaHello& member,
                     const ReplicaHello& lead) {
  return mac_of(own.secret,
                {"replica", side, std::to_string(own.worker), std::to_string(member.replica),
                 text_in(member.nonce), text_in(lead.nonce)});
}

// Of texts that may be longer than a packet.
std::string settings_digest(const ReplicaWorker& own) {
  return mac_of(own.secret, {"replica settings", own.settings});
}

ReplicaHello make_replica_hello(const ReplicaWorker& own, std::int32_t replica) {
  ReplicaHello hello;
  hello.worker = own.worker;
  hello.replica = replica;
  hello.nonce = characters<2 * kNonceBytes>(random_hex(kNonceBytes));
  return hello;
}

Expected<ReplicaHello> read_replica_hello(const shm::Packet& packet, const ReplicaWorker& own) {
  ReplicaHello hello;
  if (!read_greeting(packet, 0, hello) || hello.magic != ReplicaHello::kMagic) return malformed();
  if (hello.version != ReplicaHello::kVersion)
    return Error{Errc::protocol, describe(ReplicaRefusal::version)};
  if (hello.worker != own.worker || hello.replica <= 0) return malformed();
  return hello;
}

ReplicaRefusal judge(const ReplicaClaim& claim, const ReplicaWorker& own, std::int32_t replica,
                     const std::function<bool(std::int32_t)>& joined) {
  if (claim.version != characters<kReplicaVersionCharacters>(build_version()))
    return ReplicaRefusal::version;
  const ReplicaShape shape{claim.parameters, claim.buffers, claim.replicas};
  if (shape.replicas != own.shape.replicas || replica >= own.shape.replicas || joined(replica))
    return ReplicaRefusal::replica;
  if (text_in(claim.settings) != settings_digest(own)) return ReplicaRefusal::settings;
  return shape == own.shape ? ReplicaRefusal::none : ReplicaRefusal::model;
}

// Errors: timeout, peer_down: the lead may answer another time; others: final. Those of this
// process are, since the lead counts on it once it has sent its answer.
Expected<LeadLink> greet_lead(FileDescriptor socket, const ReplicaWorker& own, std::int32_t replica,
                              ReplicaClock::time_point deadline, const Cancelled& cancelled) {
  const auto next = [&] { return shm::wait_for_packet(socket.get(), deadline, cancelled); };
  const Error closed{Errc::peer_down, "it closed the connection"};
  if (!shm::is_same_user(socket.get()))
    return bad_input("another user's process listens in its place");
  const ReplicaHello hello = make_replica_hello(own, replica);
  if (!shm::send_packet(socket.get(), &hello, sizeof hello)) return closed;
  const auto first = next();
  if (!first) return first.error();
  const auto lead = read_replica_hello(*first, own);
  if (!lead) return lead.error();
  if (!equal_secrets(text_in(lead->proof), proof_of("lead", own, hello, *lead)))
    return bad_input(describe(ReplicaRefusal::proof));
  ReplicaClaim claim;
  claim.proof = characters<kReplicaProofDigits>(proof_of("member", own, hello, *lead));
  claim.settings = characters<kReplicaProofDigits>(settings_digest(own));
  claim.version = characters<kReplicaVersionCharacters>(build_version());
  claim.parameters = own.shape.parameters;
  claim.buffers = own.shape.buffers;
  claim.replicas = own.shape.replicas;
  claim.may_group = own.may_group ? 1 : 0;
  if (!shm::send_packet(socket.get(), &claim, sizeof claim)) return closed;
  auto last = next();
  if (!last) return last.error();
  ReplicaAnswer answer;
  if (read_greeting(*last, 0, answer) && answer.refusal != ReplicaRefusal::none)
    return bad_input(describe(answer.refusal));
  if (!read_greeting(*last, 1, answer)) return malformed();
  auto memory = ReplicaMemory::open(std::move(last->descriptors.front()), own.shape);
  if (!memory) return memory.error();
  return LeadLink{nullptr, *std::move(memory), std::move(socket)};
}

}  // namespace

const char* describe(ReplicaRefusal refusal) {
  switch (refusal) {
    case ReplicaRefusal::none:
      return "";
    case ReplicaRefusal::proof:
      return "it belongs to another job, or its GRAPEVINE_JOB_TOKEN differs: set the same in all "
             "processes";
    case ReplicaRefusal::replica:
      return "its number is taken or none of the worker's: give all processes of the job the same "
             "--processes-per-worker";
    case ReplicaRefusal::version:
      return "it runs another version of this program: start the same one everywhere";
    case ReplicaRefusal::settings:
      return "its options, its data or the run that it resumes differ: start all processes of a "
             "worker with the same";
    case ReplicaRefusal::model:
      return "its model has another size: give all processes the same";
  }
  return "its answer is unknown";
}

std::string ReplicaWorker::socket_name() const {
  constexpr std::size_t kDigits = 40;
  const std::string digest = mac_of(secret, {"replica socket", address, std::to_string(worker)});
  return "grapevine-replicas-" + digest.substr(0, kDigits);
}

Expected<GreetedMember> greet_member(int socket, const ReplicaWorker& own,
                                     const ReplicaMemory& memory,
                                     const std::function<bool(std::int32_t)>& joined,
                                     ReplicaClock::time_point deadline,
                                     const Cancelled& cancelled) {
  if (!shm::is_same_user(socket)) return Error{Errc::protocol, "it runs as another user"};
  const auto first = shm::wait_for_packet(socket, deadline, cancelled);
  if (!first) return first.error();
  const auto member = read_replica_hello(*first, own);
  if (!member) return member.error();
  ReplicaHello hello = make_replica_hello(own, member->replica);
  hello.proof = characters<kReplicaProofDigits>(proof_of("lead", own, *member, hello));
  if (!shm::send_packet(socket, &hello, sizeof hello)) return malformed();
  const auto second = shm::wait_for_packet(socket, deadline, cancelled);
  if (!second) return second.error();
  ReplicaClaim claim;
  if (!read_greeting(*second, 0, claim)) return malformed();
  if (!equal_secrets(text_in(claim.proof), proof_of("member", own, *member, hello)))
    return Error{Errc::protocol, describe(ReplicaRefusal::proof)};
  const GreetedMember greeted{member->replica, judge(claim, own, member->replica, joined),
                              claim.may_group == 1};
  const ReplicaAnswer answer{greeted.refusal};
  std::vector<int> descriptors;
  if (greeted.refusal == ReplicaRefusal::none) descriptors.push_back(memory.descriptor());
  if (!shm::send_packet(socket, &answer, sizeof answer, descriptors)) return malformed();
  return greeted;
}

Expected<LeadLink> join_lead(const ReplicaWorker& own, std::int32_t replica,
                             ReplicaClock::time_point deadline, const Cancelled& cancelled) {
  for (;;) {
    Error why;
    if (auto socket = shm::connect_to(own.socket_name())) {
      auto joined = greet_lead(*std::move(socket), own, replica, deadline, cancelled);
      if (joined) return joined;
      why = joined.error();
      if (why.code != Errc::timeout && why.code != Errc::peer_down) return why;
    } else {
      why = socket.error();
    }
    if (ReplicaClock::now() >= deadline) return Error{Errc::timeout, why.message};
    if (cancelled && cancelled()) return Error{Errc::failed, "asked to stop"};
    std::this_thread::sleep_for(kDialPause);
  }
}

}  // namespace grapevine
