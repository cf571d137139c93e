// The receiving half of a link.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "messages/codec.hpp"
#include "messages/tensor_memory.hpp"
#include "net/file_descriptor.hpp"
#include "net/receive_pool.hpp"
#include "net/shm/shm_memory.hpp"
#include "net/shm/shm_records.hpp"
#include "net/shm/shm_ring.hpp"

namespace grapevine::shm {

// Gives payloads back to the process that lent them. Shared by the link and its received tensors:
// the lease ends with the last of them. Thread-safe.
class Returns {
 public:
  Returns(std::shared_ptr<SharedMemory> outbox, FileDescriptor lease)
      : memory_(std::move(outbox)),
        box_(*reinterpret_cast<ShmOutbox*>(memory_->data())),
        lease_(std::move(lease)) {}
  void give_back(std::uint32_t slot);

 private:
  const std::shared_ptr<SharedMemory> memory_;
  ShmOutbox& box_;
  const FileDescriptor lease_;
  std::mutex mutex_;
  std::uint64_t returned_ = 0;  // guarded by mutex_
};

// Receives the records of a link. An error ends the link.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // Whether a message may go from `from` to `to` here. Called before anything is allocated.
  virtual Expected<void> admit(Rank from, Rank to) = 0;
  virtual void on_message(Envelope envelope) = 0;
  virtual Expected<void> on_departure(Rank rank) = 0;
  virtual void on_goodbye() = 0;
};

// Checks everything that the other process writes, after copying it out of the shared memory, and
// makes tensors of its blocks without copying them: their bytes are as trustworthy as those that
// come over any wire, but a hostile sender may change them later.
//
// One thread at a time.
class Inbound {
 public:
  Inbound(std::shared_ptr<SharedMemory> outbox, int socket, FileDescriptor lease,
          const CodecLimits& limits);

  // Takes at most `most` records; returns their number. Errors (protocol, io): bytes that no peer
  // sends, a lack of memory, a refusal of the sink. Throws as the allocator does.
  Expected<int> receive(RecordSink& sink, int most);

  // Reads the packets on the socket. False: the other end is closed. Errors: protocol; io: a lack
  // of memory or descriptors.
  Expected<bool> read_packets();
  // Whether a bell was among the packets that were read, also by receive(), since the last call.
  bool take_bell() { return std::exchange(rung_, false); }

  // Says that records are to be announced by a bell. False: there are records now.
  bool sleep();
  void wake();

  bool empty() const { return ring_.empty(); }
  std::uint64_t beats() const { return ring_.box().beats.load(std::memory_order_relaxed); }

 private:
  Expected<void> take(const RingReader::Record& record, RecordSink& sink);
  Expected<void> take_message(const RingReader::Record& record, RecordSink& sink);
  Expected<void> read_parts(const std::byte* from, const std::byte* end);
  Expected<at::Tensor> tensor_of(const TensorDescriptor& tensor, const TensorPart& part,
                                 const std::byte*& inlined, const std::byte* end);
  Expected<at::Tensor> block_of(const TensorDescriptor& tensor, const TensorPart& part);
  Expected<void> take_fragment(const RingReader::Record& record, RecordSink& sink);
  Expected<void> finish_message(RecordSink& sink);
  Expected<void> add_segment(const SegmentPacket& packet, FileDescriptor file);
  Expected<std::shared_ptr<SharedMemory>> segment(std::uint32_t id);
  void ring_bell();

  RingReader ring_;
  const int socket_;
  bool rung_ = false;
  const std::shared_ptr<Returns> returns_;
  const CodecLimits limits_;
  std::map<std::uint32_t, std::shared_ptr<SharedMemory>> segments_;
  std::vector<std::byte> copy_;  // of the record of a message
  // The message whose fragments arrive.
  bool assembling_ = false;
  DecodedHeader message_;
  std::vector<at::Tensor> payload_;
  ReceivePool pool_;  // of tensors that are copied out of the shared memory
  std::vector<TensorPart> parts_;
  std::size_t tensor_ = 0;    // the one that is being filled
  std::uint64_t filled_ = 0;  // bytes of it
};

}  // namespace grapevine::shm
