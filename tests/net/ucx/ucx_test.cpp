// The UCX transport between ranks of one process: conformance over both kinds of links. Between
// processes: ucx_process_test.cpp.
#include "net/ucx/ucx.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/transport_suite.hpp"
#include "tests/net/ucx/ucx_testing.hpp"

namespace grapevine::conformance {
namespace ucx_test {

#ifdef GRAPEVINE_UCX

// One transport per rank, as if each lived in a process of its own.
template <bool kSameHost>
class UcxWorld {
 public:
  explicit UcxWorld(std::int32_t world_size) {
    std::vector<std::string> addresses;
    for (Rank r = 0; r < world_size; ++r) {
      Expected<std::unique_ptr<RemoteTransport>> made = make_ucx_transport(loopback_options());
      GRAPEVINE_CHECK(made.ok(), made.error().message);
      transports_.push_back(*std::move(made));
      addresses.push_back(transports_.back()->address());
    }
    run_threads(world_size, [&](int p) {
      const Expected<void> connected = transports_[static_cast<std::size_t>(p)]->connect(
          addresses, placement(p, world_size, kSameHost), kHangDeadline);
      EXPECT_TRUE(connected.ok()) << connected.error().message;
    });
  }
  Transport& endpoint(Rank rank) { return *transports_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
};

class UcxSameHostWorld : public UcxWorld<true> {
  using UcxWorld::UcxWorld;
};
class UcxOtherHostWorld : public UcxWorld<false> {
  using UcxWorld::UcxWorld;
};

INSTANTIATE_TYPED_TEST_SUITE_P(UcxSameHost, TransportSuite, UcxSameHostWorld);
INSTANTIATE_TYPED_TEST_SUITE_P(UcxOtherHost, TransportSuite, UcxOtherHostWorld);

#else

TEST(Ucx, SaysWhatIsMissingWhereItIsNotBuiltIn) {
  EXPECT_FALSE(ucx_built_in());
  const auto made = make_ucx_transport({});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::bad_input);
  EXPECT_NE(made.error().message.find("libucx-dev"), std::string::npos);
}

#endif

}  // namespace ucx_test
}  // namespace grapevine::conformance
