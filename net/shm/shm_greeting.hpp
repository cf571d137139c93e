// The beginning of a link: two processes prove to each other that they belong to one job, then
// pass their ends of the link.
//
//   dialer → acceptor  ShmHello with a nonce
//   acceptor → dialer  ShmHello with a nonce and its proof
//   dialer → acceptor  ShmProof, with the descriptors of its Ends
//   acceptor → dialer  Answer, with the descriptors of its Ends; or a refusal
//
// A proof is an HMAC under the job's token of both nonces, processes and placements. Nothing of a
// process is used before its proof, except that it has the user of this one (SO_PEERCRED).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "net/cancelled.hpp"
#include "net/file_descriptor.hpp"
#include "net/process_links.hpp"
#include "net/shm/shm_memory.hpp"
#include "net/shm/shm_socket.hpp"
#include "net/token.hpp"

namespace grapevine::shm {

using Clock = std::chrono::steady_clock;

struct ShmHello {
  static constexpr std::uint32_t kMagic = 0x4D535647;  // "GVSM" in memory order
  static constexpr std::uint16_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  std::uint16_t codec = 0;
  std::int32_t process = 0;
  std::uint32_t zero = 0;
  std::uint64_t placement = 0;  // digest
  std::array<char, kNonceDigits> nonce{};
  std::array<char, kProofDigits> proof{};  // of the acceptor
};

struct ShmProof {
  std::array<char, kProofDigits> proof{};
};

struct Answer {
  Refusal refusal = Refusal::none;
};

ShmHello make_hello(const LinkIdentity& own);
// Errors (protocol): another program or version.
Expected<ShmHello> read_hello(const Packet& packet);
std::array<char, kProofDigits> proof_of_acceptor(const JobToken& token, const ShmHello& dialer,
                                                 const ShmHello& acceptor);
std::array<char, kProofDigits> proof_of_dialer(const JobToken& token, const ShmHello& dialer,
                                               const ShmHello& acceptor);
bool is_equal(const std::array<char, kProofDigits>& a, const std::array<char, kProofDigits>& b);

// One side of a link: the queue that the process writes, and the lease (shm_lender.hpp) that it
// holds, whose other end the other process watches.
struct Ends {
  std::shared_ptr<SharedMemory> outbox;
  FileDescriptor lease;
  FileDescriptor watch;  // passed on

  std::vector<int> descriptors() const { return {outbox->descriptor(), watch.get()}; }
};

// Errors (io).
Expected<Ends> make_ends();

// Both halves of a link, whose processes have proved themselves.
struct LinkParts {
  FileDescriptor socket;
  Ends own;
  std::shared_ptr<SharedMemory> inbox;  // the outbox of the other process
  FileDescriptor watch;                 // the other process's lease
};

// The ends that came with a packet. Errors (protocol, io).
Expected<LinkParts> join_ends(FileDescriptor socket, Ends own, Packet packet);

// Connects to `name` and greets, again and again until `deadline`, as tcp's dial() does. Errors
// (timeout, protocol; failed: cancelled): the reason alone.
Expected<LinkParts> dial(const std::string& name, const LinkIdentity& own, std::int32_t process,
                         Clock::time_point deadline, const Cancelled& cancelled, bool joins);

}  // namespace grapevine::shm
