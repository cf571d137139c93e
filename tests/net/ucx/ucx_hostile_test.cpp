// What the UCX transport does with bytes that no process of its kind sends.
#ifdef GRAPEVINE_UCX
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "net/loss_reason.hpp"
#include "net/ucx/ucx_wire.hpp"
#include "net/ucx/ucx_worker.hpp"
#include "tests/conformance/transport_suite.hpp"
#include "tests/log_lines.hpp"
#include "tests/net/ucx/failing_allocation.hpp"
#include "tests/net/ucx/tracked_memory.hpp"
#include "tests/net/ucx/ucx_testing.hpp"

namespace grapevine::conformance {
namespace ucx_hostile_test {

constexpr std::uint64_t kToken = 7;

// Process 1 of 2, which says whatever the test likes. It progresses in send() and wait() only.
class RawProcess {
 public:
  RawProcess() : worker_(*ucx::Worker::make(loopback_options())) {
    ucp_am_handler_param_t handler{};  // UCX crashes where a message comes and there is none
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    handler.id = 0;
    handler.cb = [](void*, const void*, std::size_t, void*, std::size_t,
                    const ucp_am_recv_param_t*) { return UCS_OK; };
    EXPECT_EQ(ucp_worker_set_am_recv_handler(worker_->handle(), &handler), UCS_OK);
  }

  std::string address() const {
    return ucx::pack_address({kToken, 1, worker_->address(), worker_->network_address()});
  }
  void open(const std::string& victim) {
    const std::string worker = ucx::unpack_address(victim)->any;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(worker.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    ASSERT_EQ(ucp_ep_create(worker_->handle(), &params, &endpoint_), UCS_OK);
  }
  // Does not wait for it to be taken: the victim may well have hung up.
  // `flags`: UCP_AM_SEND_FLAG_….
  void send(ucx::Prefix prefix, const EncodedHeader& header = {}, std::string data = {},
            std::uint32_t flags = 0) {
    prefix.process = 1;
    if (prefix.token == 0) prefix.token = kToken;
    std::vector<std::byte> bytes(sizeof prefix + header.size());
    std::memcpy(bytes.data(), &prefix, sizeof prefix);
    std::copy(header.begin(), header.end(), bytes.begin() + sizeof prefix);
    send_raw(bytes, std::move(data), flags);
  }
  void send_raw(std::vector<std::byte> header, std::string data, std::uint32_t flags = 0) {
    kept_.emplace_back(std::move(header), std::move(data));
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = flags;
    void* request =
        ucp_am_send_nbx(endpoint_, 0, kept_.back().first.data(), kept_.back().first.size(),
                        kept_.back().second.data(), kept_.back().second.size(), &param);
    EXPECT_FALSE(UCS_PTR_IS_ERR(request));
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    progress();
  }
  void progress() {
    while (ucp_worker_progress(worker_->handle()) != 0) {
    }
  }

 private:
  std::list<std::pair<std::vector<std::byte>, std::string>> kept_;  // UCX may not be done with them
  std::unique_ptr<ucx::Worker> worker_;
  ucp_ep_h endpoint_ = nullptr;
};

ucx::Prefix prefix(ucx::Kind kind, std::uint64_t number = 0) {
  ucx::Prefix p;
  p.kind = kind;
  p.number = number;
  return p;
}

class UcxHostile : public testing::Test {
 protected:
  virtual UcxOptions options() const { return loopback_options(); }
  void SetUp() override {
    victim_ = *make_ucx_transport(options());
    raw_.open(victim_->address());
    raw_.send(prefix(ucx::Kind::hello));
    raw_.send(prefix(ucx::Kind::hello_ack));
    std::atomic<bool> connected{false};
    std::thread connecting([&] {
      const auto result = victim_->connect({victim_->address(), raw_.address()},
                                           placement(0, 2, true), kHangDeadline);
      EXPECT_TRUE(result.ok()) << result.error().message;
      connected = true;
    });
    // An acknowledgement before connect() has no addressee: it is repeated until it is received.
    while (!connected) {
      raw_.send(prefix(ucx::Kind::hello_ack));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    connecting.join();
    ASSERT_TRUE(victim_->attach(0, inbox_).ok());
  }
  void expect_lost() {
    EXPECT_TRUE(eventually([&] {
      raw_.progress();
      return inbox_->down_count(1) == 1;
    }));
    EXPECT_EQ(inbox_->message_count(), 0u);
  }
  void expect_malformed() {
    expect_lost();
    EXPECT_TRUE(is_malformed(inbox_->down_reason(1))) << inbox_->down_reason(1);
  }

  std::shared_ptr<RecordingInbox> inbox_ = std::make_shared<RecordingInbox>();
  RawProcess raw_;
  std::unique_ptr<RemoteTransport> victim_;
};

TEST_F(UcxHostile, HeadersThatDoNotDecodeEndTheLink) {
  Rng rng(31);
  EncodedHeader header = encode_header(numbered(1, 0, 0));
  header[rng() % 12] ^= std::byte{0xff};
  raw_.send(prefix(ucx::Kind::message), header);
  expect_malformed();
}

TEST_F(UcxHostile, RanksOfOthersEndTheLink) {
  raw_.send(prefix(ucx::Kind::message), encode_header(numbered(0, 0, 0)));
  expect_malformed();
}

TEST_F(UcxHostile, ReceiversOfElsewhereEndTheLink) {
  raw_.send(prefix(ucx::Kind::message), encode_header(numbered(1, 1, 0)));
  expect_malformed();
}

TEST_F(UcxHostile, PayloadOfAnotherLengthEndsTheLink) {
  raw_.send(prefix(ucx::Kind::message), encode_header(numbered(1, 0, 0)), "surplus");
  expect_malformed();
}

TEST_F(UcxHostile, LargePayloadOfAnotherLengthEndsTheLink) {
  raw_.send(prefix(ucx::Kind::message), encode_header(numbered(1, 0, 0)),
            std::string(8 << 20, 'x'));
  expect_malformed();
}

TEST_F(UcxHostile, NumbersSaidTwiceEndTheLink) {
  raw_.send(prefix(ucx::Kind::message, 5), encode_header(numbered(1, 0, 0)));
  raw_.send(prefix(ucx::Kind::message, 5), encode_header(numbered(1, 0, 0)));
  expect_malformed();
}

TEST_F(UcxHostile, LeaveTakenForOthersEndsTheLink) {
  for (const Rank rank : {0}) {
    ucx::Prefix p = prefix(ucx::Kind::departure);
    p.rank = rank;
    raw_.send(p);
  }
  expect_malformed();
}

// Its only rank is on a device.
class UcxHostileToDevice : public UcxHostile {
 protected:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;

  UcxOptions options() const override {
    UcxOptions options = loopback_options();
    options.device_memory = memory_;
    return options;
  }
  // Of a message with one vector of kBytes.
  static EncodedHeader header() {
    Rng rng(32);
    Envelope e = numbered(1, 0, 0);
    std::get<Chunk>(e.payload).data = random_bits(rng, kBytes, at::kFloat);
    return encode_header(e);
  }

  const std::shared_ptr<TrackedMemory> memory_ =
      std::make_shared<TrackedMemory>(std::vector<bool>{true, false});
};

TEST_F(UcxHostileToDevice, AMessageAsItShouldBeHasMemoryOfTheDevice) {
  raw_.send(prefix(ucx::Kind::message), header(), std::string(kBytes, 'x'));
  EXPECT_TRUE(eventually([&] {
    raw_.progress();
    return inbox_->message_count() == 1;
  }));
  EXPECT_EQ(memory_->allocations(), 1);
  raw_.send(prefix(ucx::Kind::goodbye, 1));  // else the victim waits for an answer at its end
  EXPECT_TRUE(eventually([&] {
    raw_.progress();
    return inbox_->down_count(1) == 1;
  }));
}

// Its header is refused before.
TEST_F(UcxHostileToDevice, APayloadOfAnotherLengthHasNoMemoryOfTheDevice) {
  raw_.send(prefix(ucx::Kind::message), header(), std::string(kBytes - 4, 'x'));
  expect_malformed();
  EXPECT_EQ(memory_->allocations(), 0);
}

TEST_F(UcxHostileToDevice, AVectorAboveTheLimitHasNoMemoryOfTheDevice) {
  EncodedHeader large = header();
  const std::int64_t elements = CodecLimits().max_elements + 1;
  const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * sizeof(float);
  // The descriptor ends the header: its bytes, then its only dimension.
  std::memcpy(large.data() + large.size() - 16, &bytes, sizeof bytes);
  std::memcpy(large.data() + large.size() - 8, &elements, sizeof elements);
  raw_.send(prefix(ucx::Kind::message), large, std::string(kBytes, 'x'));
  expect_malformed();
  EXPECT_EQ(memory_->allocations(), 0);
}

// Nothing may be thrown through UCX: whatever is missing, the link ends, and the ranks hear of it.
class UcxOutOfMemory : public UcxHostile, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer has allocation functions of its own";
#endif
    UcxHostile::SetUp();
  }
  void TearDown() override { failing_allocation = failing_size = 0; }
};

// The message has a number, and the other process would wait for it before it reads on.
TEST_F(UcxOutOfMemory, EndsTheLinkOfAMessageThatCannotBeSent) {
  Envelope message = numbered(0, 1, 0);
  failing_size = sizeof(ucx::Prefix) + encode_header(message).size();
  victim_->send(std::move(message));
  expect_lost();
  EXPECT_EQ(failing_size, 0U);
  EXPECT_EQ(inbox_->down_reason(1), "an error in this process: no memory for a message");
}

TEST_F(UcxOutOfMemory, EndsTheLinkOfAMessageThatCannotBeKept) {
  failing_allocation = 1;
  raw_.send(prefix(ucx::Kind::message, 5), encode_header(numbered(1, 0, 0)));  // not the next
  expect_lost();
  EXPECT_EQ(inbox_->down_reason(1), "an error in this process: no memory for a message");
}

TEST_P(UcxOutOfMemory, TellsOfTheLinkWhereverItComesWhileTheLinkEnds) {
  failing_allocation = GetParam();
  raw_.send(prefix(ucx::Kind::message), encode_header(numbered(0, 0, 0)));  // not its own rank
  expect_lost();
}

TEST_P(UcxOutOfMemory, TellsOfTheLinkWhereverItComesDuringAGoodbye) {
  failing_allocation = GetParam();
  raw_.send(prefix(ucx::Kind::goodbye));
  expect_lost();
}

INSTANTIATE_TEST_SUITE_P(Allocations, UcxOutOfMemory, testing::Range(1, 13));

// Anybody can send to an open port: it does not harm those who are known.
TEST_F(UcxHostile, MessagesOfOtherJobsAreIgnored) {
  ucx::Prefix forged = prefix(ucx::Kind::message);
  forged.token = kToken + 1;
  raw_.send(forged, encode_header(numbered(1, 0, 0)));
  forged = prefix(ucx::Kind::goodbye);
  forged.magic ^= 1;
  raw_.send(forged);
  raw_.send_raw({}, "");
  raw_.send_raw(std::vector<std::byte>(7), std::string(1 << 20, 'x'));
  raw_.send(prefix(ucx::Kind::message), encode_header(numbered(1, 0, 0)));
  EXPECT_TRUE(eventually([&] {
    raw_.progress();
    return inbox_->message_count() == 1;
  }));
  EXPECT_EQ(inbox_->down_count(1), 0);
  raw_.send(prefix(ucx::Kind::goodbye, 1));
  EXPECT_TRUE(eventually([&] {
    raw_.progress();
    return inbox_->down_count(1) == 1;
  }));
}

class UcxHostileLogged : public UcxHostile {
 protected:
  void TearDown() override { victim_.reset(); }  // before the lines

  const LogLines log_;
};

// Another program may send any number of messages of an unknown kind, and they have one line.
TEST_F(UcxHostileLogged, AnnouncedMessagesOfAnUnknownKindHaveOneLine) {
  for (int i = 0; i < 100; ++i)
    raw_.send(prefix(ucx::Kind{7}), {}, std::string(4096, 'x'), UCP_AM_SEND_FLAG_RNDV);
  raw_.send(prefix(ucx::Kind::message), encode_header(numbered(1, 0, 0)));
  EXPECT_TRUE(eventually([&] {
    raw_.progress();
    return inbox_->message_count() == 1;
  }));
  EXPECT_EQ(log_.count({"[warning] ucx:"}), 1U) << log_.text();
  EXPECT_EQ(inbox_->down_count(1), 0);
  raw_.send(prefix(ucx::Kind::goodbye, 1));
  EXPECT_TRUE(eventually([&] {
    raw_.progress();
    return inbox_->down_count(1) == 1;
  }));
}

}  // namespace ucx_hostile_test
}  // namespace grapevine::conformance
#endif
