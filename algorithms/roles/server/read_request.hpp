// What clients send to a server, as requests.
#pragma once
#include "algorithms/compressors/compressor.hpp"
#include "algorithms/parts/service_queue.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// Of a message to a server whose slice is of d, on `device`: an ask has no gradients; a commit has
// no update where no client of this wiring can have packed it. Any other message is a broken
// invariant.
ServiceRequest read_request(const Envelope& envelope, const SharedParts& parts,
                            const Compressor& compressor, std::int64_t d, at::Device device);

}  // namespace grapevine
