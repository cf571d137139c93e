// CAF's view of the messages. The only header of this folder that includes CAF.
#pragma once
#include <caf/allowed_unsafe_message_type.hpp>

#include "messages/envelope.hpp"
#include "messages/gradient.hpp"

// These stay inside a process: across processes a transport carries the codec's bytes.
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Envelope)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::GradientRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::GradientPart)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Gradient)
