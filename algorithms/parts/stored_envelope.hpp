// Messages that have arrived and wait, as checkpoint entries.
#pragma once
#include <cstdint>
#include <string>

#include "algorithms/archive.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// REQUIRES: the payload of one that is saved is a Share. `to`: the receiver of one that is loaded.
void share_fields(Archive& a, Envelope& envelope, Rank to);

// Any message, in its bytes on the wire.
std::string stored_text(const Envelope& envelope);
// Errors (protocol): not the text of a message among that many ranks.
Expected<Envelope> stored_envelope(const std::string& text, std::int32_t ranks);
void envelope_fields(Archive& a, Envelope& envelope, std::int32_t ranks);

}  // namespace grapevine
