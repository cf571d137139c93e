// ValueType: how the values of a sparse vector travel.
#pragma once

namespace grapevine {

enum class ValueType { f32, f16 };

}  // namespace grapevine
