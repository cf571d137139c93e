// How kernels reach their operators of the library "grapevine" (see kernels.hpp).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace grapevine::kernels {

// The operator of that name, "grapevine::…", typed as one of its implementations. Throws c10::Error
// where there is none. Looking it up costs a lock and a hash: callers keep it.
template <class Function>
auto find_operator(const char* name, Function*) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

}  // namespace grapevine::kernels
