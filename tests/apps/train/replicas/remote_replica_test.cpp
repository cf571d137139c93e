// Replicas in other processes, as threads that play them: the same bits as replicas of one process,
// and bounded waits whatever the other end does.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/train/replicas/replica_frames.hpp"
#include "apps/train/replicas/replica_greeting.hpp"
#include "apps/train/replicas/serve_lead.hpp"
#include "apps/train/replicas/worker_members.hpp"
#include "gpu/replicas/replica_barrier.hpp"
#include "gpu/replicas/replicated_compute.hpp"
#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace remote_replica_test {

constexpr std::int64_t kBatch = 12;
constexpr Duration kLong = std::chrono::seconds(60);
constexpr ReplicaLimits kLimits{kLong, kLong};
constexpr std::int32_t kReplicas = 3;

DescriptorPair socket_pair() {
  auto pair = descriptor_pair([](int* ends) {
    return ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends);
  });
  EXPECT_GE(pair[0].get(), 0);
  return pair;
}

ReplicaClock::time_point soon() { return ReplicaClock::now() + std::chrono::seconds(60); }

std::vector<std::string> names() { return {"lead", "first member", "second member"}; }

// With batch-norm, so that there are buffers.
std::unique_ptr<Compute> replica_of(std::int32_t index) {
  TorchComputeConfig config = tiny_config(tiny_conv_layers, 1, 2, kBatch);
  config.data = tiny_images();
  config.replica = static_cast<std::size_t>(index);
  config.replicas = kReplicas;
  return make_tiny(std::move(config));
}

ReplicaShape shape_of(const Compute& compute) {
  return {compute.dimension(), compute.initial_buffers().numel(), kReplicas};
}

ReplicaWorker worker_of(const ReplicaShape& shape) {
  static std::atomic<int> number = 0;
  ReplicaWorker worker;
  worker.address = "test " + random_hex(8) + " " + std::to_string(number++);
  worker.secret = "secret";
  worker.settings = "model=net\n";
  worker.worker = 4;
  worker.shape = shape;
  return worker;
}

std::unique_ptr<Compute> local_worker() {
  std::vector<std::unique_ptr<Compute>> all;
  for (std::int32_t i = 0; i < kReplicas; ++i) all.push_back(replica_of(i));
  return std::make_unique<ReplicatedCompute>(std::move(all), nullptr, kLong);
}

std::unique_ptr<Compute> worker_over(const std::shared_ptr<WorkerMembers>& members) {
  std::vector<std::unique_ptr<Compute>> all;
  all.push_back(replica_of(0));
  for (std::int32_t i = 1; i < kReplicas; ++i)
    all.push_back(std::make_unique<RemoteReplica>(members, i, *all.front()));
  return std::make_unique<ReplicatedCompute>(std::move(all), nullptr, kLong);
}

// From a generator of its own: other threads make models meanwhile, from LibTorch's global one.
GradientRequest request_at(const Compute& compute, Step step, FrozenTensor recycled) {
  const at::Generator random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step) + 3);
  GradientRequest request;
  request.step = step;
  request.z = FrozenTensor::freeze(at::randn({compute.dimension()}, random));
  if (step > 0)
    request.buffers =
        FrozenTensor::freeze(at::rand({compute.initial_buffers().numel()}, random) + 1);
  request.recycled = std::move(recycled);
  request.deal = {3, 1, 2, 0};
  return request;
}

void expect_same(const Gradient& found, const Gradient& expected) {
  ASSERT_EQ(found.error, "");
  ASSERT_EQ(expected.error, "");
  EXPECT_TRUE(at::equal(found.value.read(), expected.value.read()));
  EXPECT_TRUE(at::equal(found.buffers.read(), expected.buffers.read()));
  EXPECT_EQ(found.step, expected.step);
  EXPECT_EQ(found.loss, expected.loss);
  EXPECT_EQ(found.top1, expected.top1);
  EXPECT_EQ(found.samples, expected.samples);
  EXPECT_EQ(found.length, expected.length);
}

TEST(RemoteReplica, ComputesTheBitsOfReplicasInOneProcess) {
  at::set_num_threads(1);
  const auto local = local_worker();
  const auto members = WorkerMembers::make(shape_of(*local), names(), kLimits).value();
  const ReplicaWorker own = worker_of(shape_of(*local));
  std::vector<std::future<std::string>> served;
  for (std::int32_t i = 1; i < kReplicas; ++i)
    served.push_back(std::async(std::launch::async, [&own, i] {
      const auto compute = replica_of(i);
      auto lead = join_lead(own, i, soon(), nullptr);
      if (!lead) return lead.error().message;
      const auto id = await_group(*lead);
      if (!id || !*id || !(*id)->empty()) return std::string("no sum on the host");
      const auto done = serve_lead(*compute, *lead, i, "lead", [] { return false; });
      return done ? std::string() : done.error().message;
    }));
  const auto joined = members->accept(own, soon(), nullptr);
  ASSERT_TRUE(joined) << joined.error().message;
  ASSERT_TRUE(members->announce_group({}));
  const auto spanning = worker_over(members);
  FrozenTensor recycled[2];
  for (Step step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    Gradient expected = local->gradient(request_at(*local, step, std::move(recycled[0])));
    Gradient found = spanning->gradient(request_at(*local, step, std::move(recycled[1])));
    expect_same(found, expected);
    recycled[0] = std::move(expected.value);
    recycled[1] = std::move(found.value);
  }
  members->dismiss();
  for (auto& each : served) EXPECT_EQ(each.get(), "");
}

// ---- a group over the processes

// On devices that are threads here, and as if they were processes: they share no memory for the
// mean.
class ProcessesGroup final : public GradientGroup {
 public:
  ProcessesGroup() : barrier_(kReplicas), slices_(kReplicas), gradients_(kReplicas) {}

  Expected<void> all_gather(std::size_t replica, at::Tensor& flat) override {
    slices_[replica] = flat;
    if (auto here = barrier_.wait(kLong); !here) return here;
    const std::int64_t slice = flat.numel() / kReplicas;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      const std::int64_t begin = static_cast<std::int64_t>(i) * slice;
      if (i != replica) flat.narrow(0, begin, slice).copy_(slices_[i].narrow(0, begin, slice));
    }
    return barrier_.wait(kLong);
  }
  Expected<void> broadcast(std::size_t replica, const at::Tensor& flat) override {
    slices_[replica] = flat;
    if (auto here = barrier_.wait(kLong); !here) return here;
    if (replica != 0) flat.copy_(slices_[0]);
    return barrier_.wait(kLong);
  }
  // In the order of the replicas, as a sum on the host.
  Expected<void> all_reduce_mean(std::size_t replica, at::Tensor& gradient) override {
    gradients_[replica] = gradient;
    if (auto here = barrier_.wait(kLong); !here) return here;
    at::Tensor sum = gradients_[0].clone();
    for (std::size_t i = 1; i < gradients_.size(); ++i) sum.add_(gradients_[i]);
    sum.mul_(1.0 / kReplicas);
    if (auto summed = barrier_.wait(kLong); !summed) return summed;
    gradient.copy_(sum);
    return barrier_.wait(kLong);
  }
  void abort() override {
    ++aborts_;
    barrier_.end();
  }
  int aborts() const { return aborts_; }

 private:
  ReplicaBarrier barrier_;
  std::vector<at::Tensor> slices_, gradients_;
  std::atomic<int> aborts_{0};
};

// As a process has it that dies: it aborts nothing. All threads here share the group, so that the
// abort of one would end the waits of all at once.
class GroupOfTheDead final : public GradientGroup {
 public:
  explicit GroupOfTheDead(std::shared_ptr<GradientGroup> group) : group_(std::move(group)) {}
  Expected<void> all_gather(std::size_t replica, at::Tensor& flat) override {
    return group_->all_gather(replica, flat);
  }
  Expected<void> broadcast(std::size_t replica, const at::Tensor& flat) override {
    return group_->broadcast(replica, flat);
  }
  Expected<void> all_reduce_mean(std::size_t replica, at::Tensor& gradient) override {
    return group_->all_reduce_mean(replica, gradient);
  }
  void abort() override {}

 private:
  const std::shared_ptr<GradientGroup> group_;
};

std::unique_ptr<Compute> device_replica(std::int32_t index, std::shared_ptr<GradientGroup> group) {
  TorchComputeConfig config = tiny_config(tiny_conv_layers, 1, 2, kBatch);
  config.data = tiny_images();
  config.replica = static_cast<std::size_t>(index);
  config.replicas = kReplicas;
  config.runtime = std::make_shared<LazyDevice>(static_cast<std::uint64_t>(index) + 5);
  config.group = std::move(group);
  return make_tiny(std::move(config));
}

// A lead in this thread, and its members in others; each has a device.
class GroupedWorker {
 public:
  explicit GroupedWorker(const ReplicaShape& shape) {
    members_ = WorkerMembers::make(shape, names(), kLimits).value();
    for (std::int32_t i = 1; i < kReplicas; ++i) {
      auto pair = socket_pair();
      members_->adopt(i, std::move(pair[0]));
      served_.push_back(std::async(std::launch::async, [this, i, end = std::move(pair[1]),
                                                        memory = members_->memory()]() mutable {
        return serve(i, std::move(end), std::move(memory));
      }));
    }
    EXPECT_TRUE(members_->announce_group({1, 2, 3}));
    const auto group = std::make_shared<LeadGroup>(members_, group_);
    std::vector<std::unique_ptr<Compute>> all;
    all.push_back(device_replica(0, group));
    for (std::int32_t i = 1; i < kReplicas; ++i)
      all.push_back(std::make_unique<RemoteReplica>(members_, i, *all.front()));
    compute_ = std::make_unique<ReplicatedCompute>(std::move(all), group, kLong);
  }
  ~GroupedWorker() { members_->abandon(); }

  Compute& compute() { return *compute_; }
  WorkerMembers& members() { return *members_; }
  ProcessesGroup& group() { return *group_; }
  // Why each member has ended.
  std::vector<std::string> wait() {
    std::vector<std::string> why;
    for (auto& each : served_) why.push_back(each.get());
    return why;
  }
  // Does so in place of the next gradient.
  void lose_a_member() { loses_ = true; }

 private:
  // Fails its connection amid a step, where it was told to.
  class Losing final : public Compute {
   public:
    Losing(std::unique_ptr<Compute> inner, const std::atomic<bool>& loses, int socket)
        : inner_(std::move(inner)), loses_(loses), socket_(socket) {}
    std::int64_t dimension() const override { return inner_->dimension(); }
    FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
    FrozenTensor initial_buffers() const override { return inner_->initial_buffers(); }
    Gradient gradient(GradientRequest request) override {
      if (!loses_) return inner_->gradient(std::move(request));
      ::shutdown(socket_, SHUT_RDWR);
      Gradient none;
      none.error = "lost";
      return none;
    }
    Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
      return inner_->evaluate(z, buffers);
    }

   private:
    const std::unique_ptr<Compute> inner_;
    const std::atomic<bool>& loses_;
    const int socket_;
  };

  std::string serve(std::int32_t i, FileDescriptor end, ReplicaMemory memory) {
    const auto packet = shm::wait_for_packet(end.get(), soon(), nullptr);
    if (!packet) return packet.error().message;
    const auto id = read_group(*packet);
    if (!id || !*id || **id != std::vector<std::uint8_t>{1, 2, 3}) return "no group";
    const int socket = end.get();
    const std::atomic<bool> never{false};
    Losing compute(device_replica(i, group_), i == 2 ? loses_ : never, socket);
    std::shared_ptr<GradientGroup> group = group_;
    if (i == 2) group = std::make_shared<GroupOfTheDead>(group_);
    const LeadLink link{group, std::move(memory), std::move(end)};
    const auto done = serve_lead(compute, link, i, "lead", [] { return false; });
    return done ? "" : done.error().message;
  }

  const std::shared_ptr<ProcessesGroup> group_ = std::make_shared<ProcessesGroup>();
  std::atomic<bool> loses_{false};
  std::shared_ptr<WorkerMembers> members_;
  std::unique_ptr<Compute> compute_;
  std::vector<std::future<std::string>> served_;  // last: ends before what it uses
};

// Slices of z up, the whole mean down in the lead alone.
TEST(GroupedReplicas, ComputeTheBitsOfASumOnTheHost) {
  at::set_num_threads(1);
  const auto local = local_worker();
  GroupedWorker grouped(shape_of(*local));
  for (Step step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    const Gradient expected = local->gradient(request_at(*local, step, {}));
    expect_same(grouped.compute().gradient(request_at(*local, step, {})), expected);
  }
  grouped.members().dismiss();
  EXPECT_EQ(grouped.wait(), (std::vector<std::string>{"", ""}));
  EXPECT_EQ(grouped.group().aborts(), 0);
}

// All others wait for it in the group: the lead's step fails, and all end.
TEST(GroupedReplicas, ALostMemberEndsTheStepOfAll) {
  const auto local = local_worker();
  GroupedWorker grouped(shape_of(*local));
  ASSERT_EQ(grouped.compute().gradient(request_at(*local, 0, {})).error, "");
  grouped.lose_a_member();
  // Whichever replica reports its error first: the group's may come before that of the link.
  EXPECT_EQ(grouped.compute().gradient(request_at(*local, 1, {})).error,
            "second member: this process of the worker is lost");
  for (const std::string& why : grouped.wait()) EXPECT_NE(why, "");
  EXPECT_GT(grouped.group().aborts(), 0);
  EXPECT_NE(grouped.compute().gradient(request_at(*local, 2, {})).error, "");
}

// A member waits in the group for a lead that has died.
TEST(GroupedReplicas, AMemberLeavesTheGroupOfALostLead) {
  const auto group = std::make_shared<ProcessesGroup>();
  const auto compute = device_replica(1, group);
  auto pair = socket_pair();
  const LeadLink link{group, ReplicaMemory::make(shape_of(*compute)).value(), std::move(pair[1])};
  const ReplicaTask task = task_of(request_at(*compute, 0, {}));
  ASSERT_TRUE(shm::send_packet(pair[0].get(), &task, sizeof task));
  auto served = std::async(std::launch::async, [&] {
    return serve_lead(*compute, link, 1, "process 0", [] { return false; });
  });
  pair[0].reset();
  const auto done = served.get();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::peer_down);
  EXPECT_EQ(group->aborts(), 1);
}

// ---- one member

// A lead whose first member is what the test does at the other end.
class OneMember : public testing::Test {
 protected:
  void begin(const ReplicaLimits& limits = kLimits) {
    members_ = WorkerMembers::make({kElements, 0, 2}, {"lead", "member 1"}, limits).value();
    auto pair = socket_pair();
    members_->adopt(1, std::move(pair[0]));
    ASSERT_TRUE(members_->memory().make_gradients());
    other_ = std::move(pair[1]);
  }
  Gradient ask(Step step) {
    GradientRequest request;
    request.step = step;
    request.z = FrozenTensor::freeze(at::full({kElements}, 2.0F));
    return members_->gradient(1, std::move(request));
  }
  // Answers the next task with these bytes.
  std::future<void> answer(std::vector<char> bytes) {
    return std::async(std::launch::async, [this, bytes = std::move(bytes)] {
      const auto task = shm::wait_for_packet(other_.get(), soon(), nullptr);
      ASSERT_TRUE(task);
      ASSERT_EQ(::send(other_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
    });
  }
  template <class T>
  static std::vector<char> bytes_of(const T& frame) {
    const char* const begin = reinterpret_cast<const char*>(&frame);
    return {begin, begin + sizeof frame};
  }

  static constexpr std::int64_t kElements = 5;
  std::shared_ptr<WorkerMembers> members_;
  FileDescriptor other_;
};

TEST_F(OneMember, ThatAnswersIsUsed) {
  begin();
  members_->memory().gradient_of(1).fill_(7);
  ReplicaResult result;
  result.step = 3;
  result.loss = 0.5;
  const auto answered = answer(bytes_of(result));
  const Gradient got = ask(3);
  answered.wait();
  EXPECT_EQ(got.error, "");
  EXPECT_EQ(got.loss, 0.5);
  EXPECT_TRUE(at::equal(got.value.read(), at::full({kElements}, 7.0F)));
  EXPECT_TRUE(at::equal(members_->memory().parameters(), at::full({kElements}, 2.0F)));
}

TEST_F(OneMember, ThatFailsSaysWhyAndStays) {
  begin();
  ReplicaResult result;
  const std::string why = "no such batch";
  std::copy(why.begin(), why.end(), result.error.begin());
  result.error_bytes = static_cast<std::uint32_t>(why.size());
  const auto failed = answer(bytes_of(result));
  EXPECT_EQ(ask(0).error, why);
  failed.wait();
  result = {};
  result.step = 1;
  const auto answered = answer(bytes_of(result));
  EXPECT_EQ(ask(1).error, "");
  answered.wait();
}

TEST_F(OneMember, ThatDiesIsLostAtOnceAndForGood) {
  begin();
  const auto dying = std::async(std::launch::async, [this] {
    static_cast<void>(shm::wait_for_packet(other_.get(), soon(), nullptr));
    other_.reset();
  });
  EXPECT_EQ(ask(0).error, "member 1: this process of the worker is lost");
  dying.wait();
  EXPECT_EQ(ask(1).error, "member 1: this process of the worker is lost");
}

TEST_F(OneMember, ThatIsSilentIsGivenUpInTime) {
  begin({std::chrono::milliseconds(50), kLong});
  const std::string error = ask(0).error;
  EXPECT_NE(error.find("member 1: no gradient came within"), std::string::npos) << error;
  // Its next wait ends.
  ASSERT_TRUE(shm::wait_for_packet(other_.get(), soon(), nullptr));  // the task
  const auto next = shm::wait_for_packet(other_.get(), soon(), nullptr);
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, Errc::peer_down);
  members_->abandon();
  EXPECT_EQ(members_->first_lost(), error);
}

// A first gradient may take longer than all others. The lead would wait a minute here, not 50 ms.
TEST_F(OneMember, HasLessTimeOnceItHasAnswered) {
  begin({kLong, std::chrono::milliseconds(50)});
  const auto answered = answer(bytes_of(ReplicaResult{}));
  EXPECT_EQ(ask(0).error, "");
  answered.wait();
  const std::string error = ask(1).error;
  EXPECT_NE(error.find("member 1: no gradient came within 0 s (four times --timeout"),
            std::string::npos)
      << error;
}

// A group of NCCL would wait for it.
TEST_F(OneMember, ThatIsLostIsReportedBeforeOthersJoinAGroup) {
  begin();
  EXPECT_TRUE(members_->announce_group({1, 2, 3}));
  other_.reset();
  const auto announced = members_->announce_group({1, 2, 3});
  ASSERT_FALSE(announced);
  EXPECT_EQ(announced.error().code, Errc::peer_down);
  EXPECT_EQ(announced.error().message, "member 1: this process of the worker is lost");
}

// While a group is joined, which waits for all: see link_replicas().
TEST_F(OneMember, ThatIsLostEndsTheJoinOfAGroup) {
  begin();
  EXPECT_TRUE(members_->announce_group({1, 2, 3}));
  EXPECT_FALSE(members_->has_lost_one());
  other_.reset();
  EXPECT_TRUE(members_->has_lost_one());
  members_->abandon();
  EXPECT_EQ(members_->first_lost(), "member 1: this process of the worker is lost");
}

TEST_F(OneMember, ThatSendsMalformedFramesIsLost) {
  ReplicaResult other_step;
  other_step.step = 9;
  ReplicaResult hostile;
  hostile.error_bytes = 0xFFFFFFFF;
  const std::vector<std::vector<char>> answers = {std::vector<char>(1, 'x'),
                                                  std::vector<char>(sizeof(ReplicaResult) - 1, 3),
                                                  std::vector<char>(100000, 'y'),
                                                  bytes_of(ReplicaTask{}),
                                                  bytes_of(ReplicaGoodbye{}),
                                                  bytes_of(other_step),
                                                  bytes_of(hostile)};
  for (const auto& bytes : answers) {
    SCOPED_TRACE(bytes.size());
    begin();
    const auto answered = answer(bytes);
    EXPECT_NE(ask(0).error, "");
    answered.wait();
    EXPECT_NE(ask(1).error, "");
  }
}

TEST_F(OneMember, RequestsOfAnotherSizeAreRefused) {
  begin();
  GradientRequest request;
  request.z = FrozenTensor::freeze(at::ones({kElements + 1}));
  EXPECT_NE(members_->gradient(1, std::move(request)).error, "");
}

// Its process ends before its run has begun, or by an error.
TEST_F(OneMember, IsDismissedByALeadThatEnds) {
  begin();
  members_ = nullptr;
  const auto last = shm::wait_for_packet(other_.get(), soon(), nullptr);
  ASSERT_TRUE(last);
  const auto task = read_task(*last);
  ASSERT_TRUE(task);
  EXPECT_FALSE(task->has_value());
  // In place of the group as well.
  const auto id = read_group(*last);
  ASSERT_TRUE(id);
  EXPECT_FALSE(id->has_value());
  EXPECT_FALSE(shm::wait_for_packet(other_.get(), soon(), nullptr));
}

// The group of a test, as it is when its owner ends.
struct EndOfGroup {
  std::shared_ptr<ProcessesGroup> group = std::make_shared<ProcessesGroup>();
  at::Tensor flat = at::zeros({kReplicas});

  // Of one replica alone: the others do not come.
  void use(GradientGroup& owner) {
    group->abort();
    EXPECT_FALSE(owner.all_reduce_mean(0, flat));
  }
};

// The end of NCCL's group waits for all processes, and none waits for one that has failed.
TEST_F(OneMember, IsDismissedBeforeTheGroupOfTheLeadEnds) {
  begin();
  EndOfGroup unused;
  std::make_shared<LeadGroup>(members_, unused.group).reset();
  const auto goodbye = shm::wait_for_packet(other_.get(), soon(), nullptr);
  ASSERT_TRUE(goodbye);
  EXPECT_TRUE(read_task(*goodbye));
  EXPECT_EQ(unused.group->aborts(), 1);
  EndOfGroup used;
  {
    LeadGroup group(members_, used.group);
    used.use(group);
  }
  EXPECT_EQ(used.group->aborts(), 1);  // that of the test
}

// The error of the lead's own replica, which waits for it in the group, may come first.
TEST_F(OneMember, ThatIsLostIsTheReasonOfAGroupThatFails) {
  begin();
  const auto inner = std::make_shared<ProcessesGroup>();
  LeadGroup group(members_, inner);
  EXPECT_EQ(group.lost_replica(), "");
  other_.reset();
  group.abort();
  group.abort();
  EXPECT_EQ(group.lost_replica(), "member 1: this process of the worker is lost");
  begin();  // one that lives
  LeadGroup other(members_, inner);
  other.abort();
  other.abort();
  EXPECT_EQ(other.lost_replica(), "");
}

TEST(MemberGroup, IsAbortedUnlessTheLeadEndsItToo) {
  for (const bool uses : {false, true}) {
    for (const bool dismissed : {false, true}) {
      EndOfGroup end;
      {
        MemberGroup group(end.group);
        if (uses) end.use(group);
        if (dismissed) group.dismiss();
      }
      const int of_test = uses ? 1 : 0;
      EXPECT_EQ(end.group->aborts() - of_test, uses && dismissed ? 0 : 1);
    }
  }
}

// The other side: a lead that is lost, and one that is malformed.
TEST(ServeLead, EndsWithItsLead) {
  const auto compute = replica_of(1);
  const auto serve = [&](const std::vector<char>& bytes) {
    auto pair = socket_pair();
    auto memory = ReplicaMemory::make(shape_of(*compute)).value();
    EXPECT_TRUE(memory.make_gradients());
    LeadLink link{nullptr, std::move(memory), std::move(pair[1])};
    if (!bytes.empty()) {
      EXPECT_GT(::send(pair[0].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    }
    pair[0].reset();
    return serve_lead(*compute, link, 1, "process 0", [] { return false; });
  };
  const auto lost = serve({});
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Errc::peer_down);
  EXPECT_EQ(lost.error().message, "process 0, the lead of this process's worker, is lost");
  const auto malformed = serve(std::vector<char>(20, 'z'));
  ASSERT_FALSE(malformed);
  EXPECT_EQ(malformed.error().code, Errc::protocol);
  ReplicaGoodbye goodbye;
  const char* const begin = reinterpret_cast<const char*>(&goodbye);
  EXPECT_TRUE(serve({begin, begin + sizeof goodbye}));
}

// ---- the memory

// Of memory on the host that only a sum on the host needs.
TEST(ReplicaMemory, HasGradientsWhereTheyAreSummedOnTheHost) {
  const ReplicaShape shape{1 << 20, 3, kReplicas};
  const auto grouped = WorkerMembers::make(shape, names(), kLimits).value();
  ASSERT_TRUE(grouped->announce_group({1, 2, 3}));
  struct stat status {};
  ASSERT_EQ(::fstat(grouped->memory().descriptor(), &status), 0);
  EXPECT_LT(status.st_size, std::int64_t{2} * 4 * shape.parameters);
  EXPECT_THROW(grouped->memory().gradient_of(1), std::exception);

  auto lead = ReplicaMemory::make(shape).value();
  ASSERT_TRUE(lead.make_gradients());
  ASSERT_TRUE(lead.make_gradients());
  const auto passed = [](int file) { return FileDescriptor(::dup(file)); };
  auto member = ReplicaMemory::open(passed(lead.descriptor()), shape).value();
  EXPECT_FALSE(member.open_gradients(passed(lead.descriptor()))) << "of another size";
  ASSERT_TRUE(member.open_gradients(passed(lead.descriptor_of_gradients())));
  // Each vector is itself, in both.
  const auto all = [&](const ReplicaMemory& memory) {
    std::vector<at::Tensor> vectors{memory.parameters(), memory.buffers()};
    for (std::int32_t i = 1; i < kReplicas; ++i) {
      vectors.push_back(memory.buffers_of(i));
      vectors.push_back(memory.gradient_of(i));
    }
    return vectors;
  };
  const std::vector<at::Tensor> here = all(lead), there = all(member);
  for (std::size_t i = 0; i < here.size(); ++i) at::Tensor(here[i]).fill_(static_cast<double>(i));
  for (std::size_t i = 0; i < there.size(); ++i)
    EXPECT_TRUE(at::equal(there[i], at::full_like(there[i], static_cast<double>(i)))) << i;
}

// A lead that announces a sum without the memory for it.
TEST_F(OneMember, RefusesADecisionWithoutMemory) {
  auto pair = socket_pair();
  LeadLink link{nullptr, ReplicaMemory::make({kElements, 0, 2}).value(), std::move(pair[1])};
  const ReplicaGroup on_host = group_of({});
  ASSERT_TRUE(shm::send_packet(pair[0].get(), &on_host, sizeof on_host));
  const auto id = await_group(link);
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, Errc::protocol);
}

// ---- the greeting

struct Joined {
  Expected<void> lead = Error{};
  std::vector<Expected<void>> members;
  bool may_group = false;
};

// A lead of two replicas, with members of these workers, one after the other.
Joined join(const ReplicaWorker& lead, const std::vector<ReplicaWorker>& workers,
            std::int32_t replica = 1,
            std::chrono::milliseconds limit = std::chrono::milliseconds(60000)) {
  const auto members = WorkerMembers::make(lead.shape, {"lead", "member 1"}, kLimits).value();
  Joined joined;
  auto accepting = std::async(std::launch::async, [&] {
    return members->accept(lead, ReplicaClock::now() + limit, nullptr);
  });
  for (const ReplicaWorker& worker : workers) {
    const auto link = join_lead(worker, replica, ReplicaClock::now() + limit, nullptr);
    joined.members.push_back(link ? Expected<void>() : Expected<void>(link.error()));
  }
  joined.lead = accepting.get();
  joined.may_group = members->may_group();
  return joined;
}

void expect_misfit(const ReplicaWorker& lead, const ReplicaWorker& member, ReplicaRefusal refusal,
                   std::int32_t replica = 1) {
  const Joined joined = join(lead, {member}, replica);
  ASSERT_FALSE(joined.lead);
  EXPECT_EQ(joined.lead.error().code, Errc::bad_input);
  EXPECT_NE(joined.lead.error().message.find(describe(refusal)), std::string::npos)
      << joined.lead.error().message;
  ASSERT_FALSE(joined.members.front());
  EXPECT_EQ(joined.members.front().error().code, Errc::bad_input);
  EXPECT_EQ(joined.members.front().error().message, describe(refusal));
}

TEST(ReplicaGreeting, ProcessesOfOneWorkerFindEachOther) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  const Joined joined = join(own, {own});
  EXPECT_TRUE(joined.lead) << joined.lead.error().message;
  EXPECT_TRUE(joined.members.front()) << joined.members.front().error().message;
}

// Where each process may.
TEST(ReplicaGreeting, AllOrNoneJoinAGroup) {
  for (const bool lead_may : {false, true}) {
    for (const bool member_may : {false, true}) {
      ReplicaWorker lead = worker_of({7, 2, 2}), member = lead;
      lead.may_group = lead_may;
      member.may_group = member_may;
      const Joined joined = join(lead, {member});
      ASSERT_TRUE(joined.lead) << joined.lead.error().message;
      EXPECT_EQ(joined.may_group, lead_may && member_may);
    }
  }
}

TEST(ReplicaGreeting, AMemberThatDoesNotFitIsRefusedWithTheReason) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  ReplicaWorker other = own;
  other.settings += "seed=2\n";
  expect_misfit(own, other, ReplicaRefusal::settings);
  other = own;
  other.shape.parameters = 8;
  expect_misfit(own, other, ReplicaRefusal::model);
  other = own;
  other.shape.buffers = 0;
  expect_misfit(own, other, ReplicaRefusal::model);
  other = own;
  other.shape.replicas = 4;
  expect_misfit(own, other, ReplicaRefusal::replica);
  expect_misfit(own, own, ReplicaRefusal::replica, /*replica=*/2);
}

// Its socket has a name that the secret makes: a process without it does not find the lead.
TEST(ReplicaGreeting, WithoutTheSecretThereIsNoLead) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  ReplicaWorker other = own;
  other.secret = "another";
  EXPECT_NE(own.socket_name(), other.socket_name());
  const Joined joined = join(own, {other}, 1, std::chrono::milliseconds(300));
  ASSERT_FALSE(joined.lead);
  EXPECT_EQ(joined.lead.error().code, Errc::timeout);
  EXPECT_NE(joined.lead.error().message.find("member 1 has not joined"), std::string::npos);
  ASSERT_FALSE(joined.members.front());
  EXPECT_EQ(joined.members.front().error().code, Errc::timeout);
}

// Connections that send anything, nothing, or the greeting of another secret; then the member.
TEST(ReplicaGreeting, OtherConnectionsDoNotHoldTheLeadUp) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  const auto members = WorkerMembers::make(own.shape, {"lead", "member 1"}, kLimits).value();
  auto accepting =
      std::async(std::launch::async, [&] { return members->accept(own, soon(), nullptr); });
  const auto connected = [&own, limit = soon()] {
    while (ReplicaClock::now() < limit) {
      if (auto socket = shm::connect_to(own.socket_name())) return *std::move(socket);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the lead does not listen";
    return FileDescriptor();
  };
  const std::vector<char> noise(400, 'n');
  for (const std::size_t bytes : {std::size_t{1}, sizeof(ReplicaHello), std::size_t{400}}) {
    const FileDescriptor socket = connected();
    EXPECT_GT(::send(socket.get(), noise.data(), bytes, MSG_NOSIGNAL), 0);
    const auto end = shm::wait_for_packet(socket.get(), soon(), nullptr);
    ASSERT_FALSE(end);
    EXPECT_EQ(end.error().code, Errc::peer_down);
  }
  {
    // A true hello, and then a claim without the proof.
    const FileDescriptor socket = connected();
    ReplicaHello hello;
    hello.worker = own.worker;
    hello.replica = 1;
    ASSERT_TRUE(shm::send_packet(socket.get(), &hello, sizeof hello));
    ASSERT_TRUE(shm::wait_for_packet(socket.get(), soon(), nullptr));
    const ReplicaClaim claim;
    ASSERT_TRUE(shm::send_packet(socket.get(), &claim, sizeof claim));
    EXPECT_FALSE(shm::wait_for_packet(socket.get(), soon(), nullptr));
  }
  connected().reset();
  const auto link = join_lead(own, 1, soon(), nullptr);
  EXPECT_TRUE(link) << link.error().message;
  const auto joined = accepting.get();
  EXPECT_TRUE(joined) << joined.error().message;
}

// Connections that stay open and send nothing, more than the lead keeps at a time. One after the
// other they would take longer than the member waits.
TEST(ReplicaGreeting, SilentConnectionsDoNotHoldTheLeadUp) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  const auto members = WorkerMembers::make(own.shape, {"lead", "member 1"}, kLimits).value();
  auto accepting =
      std::async(std::launch::async, [&] { return members->accept(own, soon(), nullptr); });
  std::vector<FileDescriptor> silent;
  while (silent.size() < 100)
    if (auto socket = shm::connect_to(own.socket_name()))
      silent.push_back(*std::move(socket));
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto link = join_lead(own, 1, soon(), nullptr);
  EXPECT_TRUE(link) << link.error().message;
  const auto joined = accepting.get();
  EXPECT_TRUE(joined) << joined.error().message;
}

// The process gets no more descriptors, as long as this lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit less = before_;
    less.rlim_cur = 3;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &less), 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(ReplicaGreeting, ALeadWithoutDescriptorsSaysSo) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  const auto members = WorkerMembers::make(own.shape, {"lead", "member 1"}, kLimits).value();
  FileDescriptor waiting;
  std::unique_ptr<NoDescriptors> none;
  const auto accepted = members->accept(own, soon(), [&] {  // asked before each wait
    if (!none) {
      waiting = *shm::connect_to(own.socket_name());
      none = std::make_unique<NoDescriptors>();
    }
    return false;
  });
  none = nullptr;
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, Errc::io);
  EXPECT_EQ(accepted.error().message, shm::kNoDescriptors);
}

// The lead counts on it once it has answered, so that it must not ask another time: it reports what
// it lacks.
TEST(ReplicaGreeting, AMemberThatFailsAfterTheAnswerSaysWhy) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  const auto memory = ReplicaMemory::make(own.shape).value();
  const auto listener = shm::listen_at(own.socket_name());
  ASSERT_TRUE(listener) << listener.error().message;
  auto joining = std::async(std::launch::async, [&] { return join_lead(own, 1, soon(), nullptr); });
  FileDescriptor socket;
  while (socket.get() < 0) socket = shm::accept_from(listener->get());
  {
    const NoDescriptors none;
    const auto greeted = greet_member(
        socket.get(), own, memory, [](std::int32_t) { return false; }, soon(), nullptr);
    EXPECT_TRUE(greeted) << greeted.error().message;
    const auto joined = joining.get();
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().code, Errc::io);
    EXPECT_EQ(joined.error().message, shm::kNoDescriptors);
  }
}

// A program that listens under the lead's name, without the secret.
TEST(ReplicaGreeting, AMemberProvesNothingToAnotherLead) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  const auto listener = shm::listen_at(own.socket_name());
  ASSERT_TRUE(listener) << listener.error().message;
  auto joining = std::async(std::launch::async, [&] { return join_lead(own, 1, soon(), nullptr); });
  FileDescriptor socket;
  while (socket.get() < 0) socket = shm::accept_from(listener->get());
  ASSERT_TRUE(shm::wait_for_packet(socket.get(), soon(), nullptr));
  ReplicaHello hello;
  hello.worker = own.worker;
  hello.replica = 1;
  ASSERT_TRUE(shm::send_packet(socket.get(), &hello, sizeof hello));
  const auto joined = joining.get();
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().message, describe(ReplicaRefusal::proof));
  const auto more = shm::wait_for_packet(socket.get(), soon(), nullptr);
  ASSERT_FALSE(more);  // no claim
}

TEST(ReplicaGreeting, CancelledWaitsEnd) {
  const ReplicaWorker own = worker_of({7, 2, 2});
  const auto members = WorkerMembers::make(own.shape, {"lead", "member 1"}, kLimits).value();
  const auto accepted = members->accept(own, soon(), [] { return true; });
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, Errc::failed);
  const auto joined = join_lead(own, 1, soon(), [] { return true; });
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Errc::failed);
}

}  // namespace remote_replica_test
}  // namespace grapevine
