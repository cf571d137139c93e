#include "algorithms/collectives/bucketed_reduction.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "algorithms/collectives/slices.hpp"
#include "messages/check.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

using Outgoing = std::vector<OutgoingMessage>;

class BucketedReduction final : public Reduction {
 public:
  BucketedReduction(const std::vector<Rank>& ranks, std::int32_t position, std::int64_t d,
                    ExactReduce algorithm, PartBegins begins)
      : d_(d), begins_(std::move(begins)), open_(count()) {
    const auto size = static_cast<std::int32_t>(ranks.size());
    std::int32_t index = 0;
    for (std::size_t b = 0; b < count(); ++b) {
      const std::int64_t length = begin_of(b + 1) - begin_of(b);
      buckets_.push_back(make_exact_reduction(ranks, position, length, algorithm));
      first_index_.push_back(index);
      index += size * pieces_of_slice(length, size, kRingPieceElements);
    }
  }

  PartBegins parts() const override { return begins_; }

  Outgoing start_part(std::int64_t operation, double epoch, std::int64_t begin,
                      const at::Tensor& part, Rng& rng) override {
    // The saved state had it: its gradient was asked for again.
    if (begin >= begin_of(open_)) return {};
    GRAPEVINE_CHECK(begin > 0 && begin + part.numel() == begin_of(open_), "a part of ",
                    part.numel(), " elements from ", begin, " on, where those before ",
                    begin_of(open_), " are missing");
    in_parts_ = true;
    return open(operation, epoch, begin, part, rng);
  }

  Outgoing start(std::int64_t operation, double epoch, at::Tensor&& vector, Rng& rng) override {
    at::Tensor left = std::exchange(vector, at::Tensor());
    const std::int64_t missing = begin_of(open_);
    GRAPEVINE_CHECK(!given_ && left.numel() >= missing && left.numel() <= d_, "a vector of ",
                    left.numel(), " instead of ", missing);
    given_ = true;
    if (missing < d_) return open(operation, epoch, 0, left.narrow(0, 0, missing), rng);
    in_parts_ = false;
    sum_ = std::move(left);
    return open_buckets(operation, epoch, 0, rng);
  }

  Outgoing on_message(Rank from, Payload payload) override {
    auto* chunk = std::get_if<Chunk>(&payload);
    GRAPEVINE_CHECK(chunk != nullptr && chunk->index >= 0, "rank ", from,
                    " sent all-reduce a message that is not a chunk");
    const auto after = std::upper_bound(first_index_.begin(), first_index_.end(), chunk->index);
    const auto b = static_cast<std::size_t>(after - first_index_.begin() - 1);
    chunk->index -= first_index_[b];
    return numbered(b, buckets_[b]->on_message(from, std::move(payload)));
  }

  bool running() const override { return given_; }
  bool done() const override {
    return given_ && std::all_of(buckets_.begin(), buckets_.end(),
                                 [](const auto& bucket) { return bucket->done(); });
  }

  // Of the oldest bucket that is not done.
  std::vector<Awaited> awaited() const override {
    for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket)
      if (!(*bucket)->done()) return (*bucket)->awaited();
    return {};
  }

  at::Tensor take_sum() override {
    std::vector<at::Tensor> sums;
    for (const auto& bucket : buckets_) sums.push_back(bucket->take_sum());
    // One that was loaded lies elsewhere, and one of own values that are still being read.
    if (!lie_in_place(sums)) {
      sum_ = memory_for(sums.front());
      for (std::size_t b = 0; b < count(); ++b) part_of(sum_, b).copy_(sums[b]);
    }
    forget();
    return std::exchange(sum_, at::Tensor());
  }

  at::Tensor recycle(at::Tensor free) override {
    if (!in_parts_ || sum_.defined()) return free;
    sum_ = std::move(free);
    return {};
  }

  bool take_back() override {
    for (const auto& bucket : buckets_) static_cast<void>(bucket->take_back());
    forget();
    sum_ = at::Tensor();  // parts of it may still be read
    return false;
  }

  void fields(Archive& a, std::int64_t operation, double epoch) override {
    if (a.loads() && !a.has("open"))
      a.fail(bad_input(
          "the saved sum is of a wiring without buckets: resume with its bucket_bytes, or from "
          "another checkpoint"));
    a.whole("open", open_, 0, static_cast<std::int64_t>(count()));
    a.flag("given", given_);
    bool fits = given_ ? open_ == 0 : open_ > 0;
    for (std::size_t b = 0; b < count(); ++b) {
      a.part("bucket." + std::to_string(b), *buckets_[b], operation, epoch);
      fits = fits && buckets_[b]->running() == (b >= open_);
    }
    a.require(fits, "open", "does not fit the buckets: the checkpoint is damaged");
  }

 private:
  std::size_t count() const { return begins_->size(); }
  std::int64_t begin_of(std::size_t b) const { return b < count() ? (*begins_)[b] : d_; }

  at::Tensor memory_for(const at::Tensor& like) const {
    return empty_to_send({d_}, at::kFloat, like.device());
  }
  at::Tensor part_of(const at::Tensor& all, std::size_t b) const {
    return all.narrow(0, begin_of(b), begin_of(b + 1) - begin_of(b));
  }

  bool lie_in_place(const std::vector<at::Tensor>& sums) const {
    for (std::size_t b = 0; sum_.defined() && b < count(); ++b)
      if (sums[b].data_ptr() != part_of(sum_, b).data_ptr()) return false;
    return sum_.defined();
  }

  Outgoing open(std::int64_t operation, double epoch, std::int64_t begin, const at::Tensor& part,
                Rng& rng) {
    if (!sum_.defined()) sum_ = memory_for(part);
    sum_.narrow(0, begin, part.numel()).copy_(part);
    return open_buckets(operation, epoch, begin, rng);
  }

  // Those from `begin` on that are not open yet, the last one first.
  Outgoing open_buckets(std::int64_t operation, double epoch, std::int64_t begin, Rng& rng) {
    Outgoing out;
    while (open_ > 0 && begin_of(open_ - 1) >= begin) {
      --open_;
      Outgoing more =
          numbered(open_, buckets_[open_]->start(operation, epoch, part_of(sum_, open_), rng));
      std::move(more.begin(), more.end(), std::back_inserter(out));
    }
    GRAPEVINE_CHECK(begin_of(open_) == begin, "no bucket begins at ", begin);
    return out;
  }

  // Messages of a bucket, by their numbers among those of all.
  Outgoing numbered(std::size_t b, Outgoing messages) const {
    for (OutgoingMessage& message : messages)
      std::get<Chunk>(message.payload).index += first_index_[b];
    return messages;
  }

  void forget() {
    given_ = false;
    open_ = count();
  }

  // Constant after construction.
  const std::int64_t d_;
  const PartBegins begins_;
  std::vector<std::int32_t> first_index_;  // of the chunks of each bucket

  std::vector<std::unique_ptr<Reduction>> buckets_;
  std::size_t open_;       // this bucket and all after it have been given to the operation
  bool given_ = false;     // all have, by start()
  bool in_parts_ = false;  // the newest vector came in parts
  at::Tensor sum_;  // [d]: of the open buckets, whose sums take place in it; else spare memory
};

}  // namespace

PartBegins bucket_begins(std::int64_t d, std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  const auto element = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t least = (d + kMostBuckets - 1) / kMostBuckets;
  const std::int64_t length = std::max({std::int64_t{1}, bytes / element, least});
  if (d <= length) return nullptr;
  std::vector<std::int64_t> begins{0};
  for (std::int64_t begin = d % length == 0 ? length : d % length; begin < d; begin += length)
    begins.push_back(begin);
  return std::make_shared<const std::vector<std::int64_t>>(std::move(begins));
}

std::unique_ptr<Reduction> make_bucketed_reduction(const std::vector<Rank>& ranks,
                                                   std::int32_t position, std::int64_t d,
                                                   ExactReduce algorithm, PartBegins begins) {
  GRAPEVINE_CHECK(begins && begins->size() >= 2 && begins->front() == 0 && begins->back() < d,
                  "fewer than two buckets");
  return std::make_unique<BucketedReduction>(ranks, position, d, algorithm, std::move(begins));
}

}  // namespace grapevine
