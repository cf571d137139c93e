// A run that others continue deals the samples of each epoch as if the same ranks had gone on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "actors/run/simulation/run_virtual.hpp"
#include "apps/train/resume/saved_job.hpp"
#include "apps/train/train_job.hpp"
#include "apps/train/train_place.hpp"
#include "tests/apps/process.hpp"
#include "tests/gpu/tiny_data.hpp"

namespace grapevine {
namespace continued_run_test {

// The batches that enter training. A gradient that nobody takes is of none: its batch is dealt
// anew.
struct Seen {
  using Samples = std::vector<std::int64_t>;
  struct Dealt {
    std::uint64_t epoch = 0;  // its seed of augmentations: each epoch has its own
    Samples samples;
  };

  void take(Rank rank, Step step) {
    const Dealt& dealt = asked.at({rank, step});
    if (taken.count(dealt.epoch) == 0) epochs.push_back(dealt.epoch);
    for (const std::int64_t sample : dealt.samples) ++taken[dealt.epoch][sample];
  }

  Dealt read;
  std::map<std::pair<Rank, Step>, Dealt> asked;
  std::vector<std::uint64_t> epochs;                           // in their order
  std::map<std::uint64_t, std::map<std::int64_t, int>> taken;  // how often, by epoch and sample
};

class SeenData : public TinyData {
 public:
  SeenData(DataInfo info, std::shared_ptr<Seen> seen)
      : TinyData(std::move(info)), seen_(std::move(seen)) {}

  Expected<Batch> batch(Split split, const std::vector<std::int64_t>& indices,
                        std::uint64_t augment_seed) const override {
    seen_->read = {augment_seed, indices};
    return TinyData::batch(split, indices, augment_seed);
  }

 private:
  std::shared_ptr<Seen> seen_;
};

class SeenCompute : public Compute {
 public:
  SeenCompute(std::shared_ptr<Compute> own, Rank rank, std::shared_ptr<Seen> seen)
      : own_(std::move(own)), rank_(rank), seen_(std::move(seen)) {}

  std::int64_t dimension() const override { return own_->dimension(); }
  FrozenTensor initial_parameters() const override { return own_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return own_->initial_buffers(); }
  Gradient gradient(GradientRequest request) override {
    const Step step = request.step;
    Gradient gradient = own_->gradient(std::move(request));
    seen_->asked[{rank_, step}] = seen_->read;
    return gradient;
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return own_->evaluate(z, buffers);
  }

 private:
  std::shared_ptr<Compute> own_;
  Rank rank_;
  std::shared_ptr<Seen> seen_;
};

struct Watcher : RunObserver {
  explicit Watcher(std::shared_ptr<Seen> batches) : seen(std::move(batches)) {}
  void on_step(const StepReport& report) override { seen->take(report.rank, report.step); }
  void on_changed(const LiveSettings& changed) override { changes.push_back(changed); }
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string& message) override { warnings.push_back(message); }
  void on_end(RunResult) override {}

  std::shared_ptr<Seen> seen;
  std::vector<LiveSettings> changes;
  std::vector<std::string> warnings;
};

TrainOptions usual_options(const std::string& out) {
  TrainOptions options;
  options.algorithm = "ar";
  options.model = "linear";
  options.threads = 1;
  options.trace = "off";
  options.validate = "end";
  options.checkpoint_every = 0;
  options.out = out;
  return options;
}

// As `train` makes it, of other data. `initial`: ranks that begin it; 0: all.
Expected<TrainJob> make_job(const TrainOptions& options, std::int64_t samples, bool by_length,
                            const std::shared_ptr<Seen>& seen, std::int64_t initial = 0) {
  JobMaker maker;
  maker.place = [initial](TrainJob& job) {
    job.run.initial_workers = static_cast<std::int32_t>(initial);
    return find_place(job);
  };
  maker.data = [&](TrainJob& job) {
    DataInfo info;
    info.name = "seen";
    info.sample_shape = {1, 1, 2};
    info.classes = 2;
    info.train_size = samples;
    info.by_length = by_length;
    job.data = std::make_shared<SeenData>(info, seen);
    return Expected<void>();
  };
  auto job = make_train_job(options, maker);
  if (!job) return job;
  for (std::size_t rank = 0; rank < job->run.computes.size(); ++rank)
    job->run.computes[rank] = std::make_shared<SeenCompute>(std::move(job->run.computes[rank]),
                                                            static_cast<Rank>(rank), seen);
  seen->asked.clear();
  return job;
}

struct Part {
  std::int64_t workers = 0;
  Step steps = 0;     // where the run begins
  double epochs = 0;  // where it continues
};

struct Shape {
  std::int64_t samples = 0, batch = 0;
  bool by_length = false;
  std::vector<Part> parts;
};

std::string text_of(const Shape& shape) {
  std::string text = std::to_string(shape.samples) + " samples, batch " +
                     std::to_string(shape.batch) + (shape.by_length ? ", by length" : "");
  for (const Part& part : shape.parts)
    text += ", " + std::to_string(part.workers) + " workers to " +
            (part.steps > 0 ? "step " + std::to_string(part.steps)
                            : "epoch " + std::to_string(part.epochs));
  return text;
}

void train(const Shape& shape, const Part& part, const std::string& out,
           const std::shared_ptr<Seen>& seen) {
  TrainOptions options = usual_options(out);
  options.workers = part.workers;
  options.batch_size = shape.batch;
  options.steps = part.steps;
  if (part.epochs > 0) options.epochs = part.epochs;
  if (part.steps == 0) options.resume = out;
  auto job = make_job(options, shape.samples, shape.by_length, seen);
  ASSERT_TRUE(job.ok()) << job.error().message;
  const auto watcher = std::make_shared<Watcher>(seen);
  const RunResult result = run_virtual(std::move(job->run), watcher);
  ASSERT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(watcher->warnings, std::vector<std::string>());
}

// An epoch has as many whole batches as the ranks share with which the run began: what is left over
// is the rest of that division, whoever continues. `spent`: batches that changes of members have
// cost: of gradients that they dropped, or left out where a rank had not reached them.
void expect_shared(const Shape& shape, const Seen& seen, std::int64_t spent = 0) {
  const std::int64_t first = shape.parts.front().workers;
  const std::int64_t batches = shape.samples / (first * shape.batch) * first;
  const double planned = shape.parts.back().epochs;
  std::int64_t total = 0;
  for (std::size_t epoch = 0; epoch < seen.epochs.size(); ++epoch) {
    const auto& taken = seen.taken.at(seen.epochs[epoch]);
    for (const auto& [sample, count] : taken)
      EXPECT_EQ(count, 1) << "sample " << sample << " in epoch " << epoch;
    if (static_cast<double>(epoch) + 1 <= planned) {
      const auto samples = static_cast<std::int64_t>(taken.size());
      EXPECT_LE(samples, batches * shape.batch) << "epoch " << epoch;
      EXPECT_GE(samples, (batches - spent) * shape.batch) << "epoch " << epoch;
    }
    total += static_cast<std::int64_t>(taken.size());
  }
  // The last step of all ranks completes the last epoch.
  const auto least = static_cast<std::int64_t>(std::ceil(planned * static_cast<double>(batches)));
  EXPECT_GE(total, (least - spent) * shape.batch);
  EXPECT_LT(total, (least + shape.parts.back().workers) * shape.batch);
}

// What an epoch lacks is in the result's list, but for batches whose gradients were dropped.
void expect_listed(const Shape& shape, const Seen& seen, const RunResult& result) {
  const std::int64_t first = shape.parts.front().workers;
  const std::int64_t batches = shape.samples / (first * shape.batch) * first;
  std::map<Epoch, std::int64_t> left_out;
  for (const auto& [epoch, run] : result.batches.left_out_runs) left_out[epoch] += run.count;
  EXPECT_EQ(result.batches.again, 0) << "no rank was lost";
  for (std::size_t epoch = 0; epoch < seen.epochs.size(); ++epoch) {
    if (static_cast<double>(epoch) + 1 > shape.parts.back().epochs) continue;
    const auto samples = static_cast<std::int64_t>(seen.taken.at(seen.epochs[epoch]).size());
    const std::int64_t missing = batches - samples / shape.batch;
    EXPECT_GE(missing, left_out[static_cast<Epoch>(epoch)]) << "epoch " << epoch;
    EXPECT_LE(missing, left_out[static_cast<Epoch>(epoch)] + result.ledger.dropped)
        << "epoch " << epoch;
  }
}

// From 1 to `most`.
std::int64_t upto(std::mt19937_64& rng, std::uint64_t most) {
  return 1 + static_cast<std::int64_t>(rng() % most);
}

Shape random_shape(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  Shape shape;
  shape.by_length = rng() % 2 == 0;
  shape.batch = upto(rng, 4);
  std::int64_t most = 0;
  for (int i = 0; i < 3; ++i) {
    shape.parts.push_back({upto(rng, 5), 0, 0});
    most = std::max(most, shape.parts.back().workers);
  }
  shape.samples = most * shape.batch + upto(rng, 40);
  const std::int64_t first = shape.parts.front().workers;
  const std::int64_t steps = shape.samples / (first * shape.batch);  // an epoch
  shape.parts.front().steps = upto(rng, static_cast<std::uint64_t>(2 * steps));
  // Amid an epoch, and at the end of one.
  shape.parts[1].epochs = std::floor(static_cast<double>(shape.parts[0].steps) / steps) + 1.5;
  shape.parts[2].epochs = std::ceil(shape.parts[1].epochs) + static_cast<double>(rng() % 2);
  return shape;
}

TEST(SharedEpochs, NoSampleOfAnEpochIsTakenTwiceHoweverManyRanksContinue) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Shape shape = random_shape(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(shape));
    const TemporaryDirectory folder;
    const auto seen = std::make_shared<Seen>();
    for (const Part& part : shape.parts) {
      train(shape, part, (folder.path() / "run").string(), seen);
      if (testing::Test::HasFatalFailure()) return;
    }
    expect_shared(shape, *seen);
  }
}

// Ranks that take vacant places share what nobody has taken: an epoch is that of all places.
TEST(SharedEpochs, RanksThatJoinTakeWhatIsLeft) {
  std::int64_t joined = 0, dropped = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 rng(seed);
    Shape shape;
    shape.by_length = rng() % 2 == 0;
    shape.batch = upto(rng, 4);
    const std::int64_t places = 1 + upto(rng, 5),
                       initial = upto(rng, static_cast<std::uint64_t>(places - 1));
    shape.samples = places * shape.batch * 4 + upto(rng, 40);
    shape.parts = {{places, 0, 1.5 + static_cast<double>(rng() % 3) / 2}};
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text_of(shape) + ", of which " +
                 std::to_string(initial) + " begin");
    const TemporaryDirectory folder;
    const auto seen = std::make_shared<Seen>();
    TrainOptions options = usual_options((folder.path() / "run").string());
    options.workers = places;
    options.batch_size = shape.batch;
    options.epochs = shape.parts.front().epochs;
    options.delay = "lognormal=0:0";  // a step takes a second
    auto job = make_job(options, shape.samples, shape.by_length, seen, initial);
    ASSERT_TRUE(job.ok()) << job.error().message;
    job->run.min_workers = 1;
    for (std::int64_t rank = initial; rank < places; ++rank)
      job->run.returns.push_back(
          {static_cast<Rank>(rank), std::chrono::milliseconds(rng() % 12'000)});
    const RunResult result = run_virtual(std::move(job->run), std::make_shared<Watcher>(seen));
    ASSERT_FALSE(result.error) << result.error->message;
    joined += result.joined;
    dropped += result.ledger.dropped;
    expect_shared(shape, *seen, result.ledger.dropped + result.joined);
    expect_listed(shape, *seen, result);
  }
  EXPECT_GT(joined, 30);
  EXPECT_LT(dropped, 2 * joined) << "a rank that comes costs little";
}

// A process that joins learns it from the job.
TEST(SharedEpochs, AProcessThatJoinsCountsThemAlike) {
  for (const HorizonStart& start :
       {HorizonStart{30, 1.5, 0}, HorizonStart{0, 0, 4}, HorizonStart{30, 0.1, 4}}) {
    const std::string line = clock_start_line(start);
    const std::size_t begin = line.find('"') + 1;
    const std::string text = line.substr(begin, line.rfind('"') - begin);
    const auto read = parse_clock_start(text);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_EQ(read->step, start.step);
    EXPECT_EQ(read->epoch, start.epoch);
    EXPECT_EQ(read->ranks, start.ranks);
    JobIdentity identity = {{"workers", "2"}};
    put_horizon_start(start, identity);
    EXPECT_EQ(horizon_start_in(identity).step, start.step);
    EXPECT_EQ(horizon_start_in(identity).ranks, start.ranks);
  }
  EXPECT_EQ(clock_start_line({}), "");
  for (const char* text :
       {"", "3", "3@", "0@1", "3@-1", "3@1/", "3@1/0", "3@1/-2", "3@1/2x", "-3@1/2", "3@nan", "x"})
    EXPECT_FALSE(parse_clock_start(text).ok()) << text;
}

// A run of two ranks, 8 steps of a second in an epoch. `control`: from a rank to the supervisor.
std::shared_ptr<Watcher> plan_changes(TrainOptions options, Duration control,
                                      std::optional<Duration> stop_at = std::nullopt) {
  options.workers = 2;
  options.batch_size = 4;
  options.delay = "lognormal=0:0";
  options.checkpoint_every = 1;
  const auto seen = std::make_shared<Seen>();
  const auto watcher = std::make_shared<Watcher>(seen);
  auto job = make_job(options, 64, false, seen);
  EXPECT_TRUE(job.ok()) << job.error().message;
  if (!job) return watcher;
  job->run.world = std::make_shared<VirtualWorld>();
  job->run.world->control_delay = control;
  job->run.stop_at = stop_at;
  const RunResult result = run_virtual(std::move(job->run), watcher);
  EXPECT_FALSE(result.error) << result.error->message;
  return watcher;
}

// A change that ranks have not answered is tried again, also by a run that continues: once.
TEST(PlannedChanges, OneThatWasPutOffTakesPlaceInTheRunThatContinues) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "changes.toml").string();
  std::ofstream(file) << "[[change]]\nepoch = 0.5\nlr = 0.02\n"
                         "[[change]]\nepoch = 1\nalgorithm = 'sgp'\n"
                         "[[change]]\nepoch = 5\nlr = 0.01\n";
  TrainOptions options = usual_options((folder.path() / "run").string());
  options.schedule = file;
  options.steps = 48;
  // An answer takes 0.6 s, and ranks have half a second for it.
  const auto late = plan_changes(options, from_seconds(0.3), from_seconds(20));
  EXPECT_TRUE(late->changes.empty()) << late->changes.size();
  ASSERT_FALSE(late->warnings.empty());
  EXPECT_NE(late->warnings.front().find("does not answer"), std::string::npos)
      << late->warnings.front();
  options.resume = options.out;
  options.steps = 36;
  const auto then = plan_changes(options, Duration::zero());
  EXPECT_EQ(then->changes, std::vector<LiveSettings>({{{"lr", "0.02"}}, {{"algorithm", "sgp"}}}));
  options.lr = 0.02;  // of the state, as its job.toml has it
  options.algorithm = "sgp";
  options.steps = 48;
  const auto rest = plan_changes(options, Duration::zero());
  EXPECT_EQ(rest->changes, std::vector<LiveSettings>({{{"lr", "0.01"}}}));
  EXPECT_TRUE(rest->warnings.empty()) << rest->warnings.front();
}

}  // namespace continued_run_test
}  // namespace grapevine
