// Epochs as a whole number.
#pragma once
#include <cmath>

#include "messages/ids.hpp"

namespace grapevine {

// Epochs that are over, with a margin for rounding: a whole number must stay whole.
inline Epoch whole_epochs(double epochs) { return static_cast<Epoch>(std::floor(epochs + 1e-9)); }

}  // namespace grapevine
