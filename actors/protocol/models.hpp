// How the models of ranks reach the Evaluator, those of other processes by ModelSender and
// ModelFetcher.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/peer.hpp"

namespace grapevine {

// In the place of an epoch: the model at the end of the run.
inline constexpr Epoch kLastModel = -1;

// A rank's model. In process 0 it goes to the Evaluator; elsewhere to the ModelSender, which keeps
// it, and the Evaluator receives a ModelOffer.
struct EpochModel {
  Rank rank = 0;
  Epoch epoch = 0;  // at whose end it is the model, or kLastModel
  FrozenTensor z;   // may be empty
  FrozenTensor buffers;
};
// Send the numbers [begin, begin + count) of a kept model, z and then its buffers, as one
// StateChunk to a rank of process 0. Answered with ModelSent.
struct SendModel {
  Rank rank = 0;
  Epoch epoch = 0;
  std::int64_t begin = 0, count = 0;
  std::int64_t transfer = 0;  // of the StateChunk
  Rank to = 0;
};
struct ModelSent {
  std::string why;  // not; empty: it is on its way
};
// A kept model is not needed any more.
struct ReleaseModel {
  Rank rank = 0;
  Epoch epoch = 0;
};
using ModelSenderActor =
    caf::typed_actor<caf::reacts_to<EpochModel>, caf::replies_to<SendModel>::with<ModelSent>,
                     caf::reacts_to<ReleaseModel>>;

// A model that `sender` keeps, to be fetched.
struct ModelOffer {
  Rank rank = 0;
  Epoch epoch = 0;
  std::int64_t parameters = 0, buffers = 0;  // elements
  ModelSenderActor sender;                   // null: there is none
};
// To the ModelFetcher: fetch these numbers of an offered model. Answered with FetchedModel.
struct FetchModel {
  ModelOffer offer;
  std::int64_t begin = 0, count = 0;
};
struct FetchedModel {
  FrozenTensor values;  // [count] float32; empty: it could not be fetched
  bool lost = false;    // because its process is lost
  std::string why;      // else
};
// A part of a model or of a checkpoint's state that a rank of process 0 has received of rank
// `from`, which is in another process.
struct StatePart {
  Rank from = 0;
  StateChunk chunk;
};
// The ranks that train from now on; those that join send no models of earlier epochs.
struct MembersChanged {
  std::vector<Rank> members;
  std::vector<Rank> joining;
  Epoch first_epoch = 0;
};
using ModelFetcherActor =
    caf::typed_actor<caf::replies_to<FetchModel>::with<FetchedModel>, caf::reacts_to<StatePart>,
                     caf::reacts_to<PeerLost>, caf::reacts_to<MembersChanged>>;

// The last model of a rank, here or to be fetched.
struct LastModel {
  bool server = false;  // z is its slice
  FrozenTensor z, buffers;
  ModelOffer offer;
};
// To the ModelAverager, which answers with AveragedModels: the mean of the last models.
struct AverageModels {
  std::int64_t round = 0;         // an order ends the one before
  std::vector<LastModel> models;  // by rank
};
struct AveragedModels {
  std::int64_t round = 0;
  FrozenTensor z;                 // [d]; empty: a model is missing
  FrozenTensor buffers;           // [b] or empty
  double consensus_distance = 0;  // mean over workers of |z_i - z|_2 / |z|_2
  std::string why;                // a model is missing
};
using ModelAveragerActor = caf::typed_actor<caf::reacts_to<AverageModels>>;

using EvaluatorActor = caf::typed_actor<caf::reacts_to<EpochModel>, caf::reacts_to<ModelOffer>,
                                        caf::reacts_to<MembersChanged>>;

// ---- how they are written ----

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SendModel& m) {
  return f(caf::meta::type_name("grapevine::SendModel"), m.rank, m.epoch, m.begin, m.count,
           m.transfer, m.to);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ModelSent& m) {
  return f(caf::meta::type_name("grapevine::ModelSent"), m.why);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ReleaseModel& m) {
  return f(caf::meta::type_name("grapevine::ReleaseModel"), m.rank, m.epoch);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ModelOffer& m) {
  return f(caf::meta::type_name("grapevine::ModelOffer"), m.rank, m.epoch, m.parameters, m.buffers,
           m.sender);
}

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::MembersChanged)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StatePart)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::EpochModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::FetchModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::FetchedModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AverageModels)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AveragedModels)
