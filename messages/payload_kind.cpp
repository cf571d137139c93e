#include "messages/payload_kind.hpp"

namespace grapevine {

const char* name_of(PayloadKind kind) {
  switch (kind) {
    case PayloadKind::none:
      return "";
    case PayloadKind::share:
      return "share";
    case PayloadKind::leave:
      return "leave";
    case PayloadKind::chunk:
      return "chunk";
    case PayloadKind::marker:
      return "marker";
    case PayloadKind::swap:
      return "swap";
    case PayloadKind::progress_update:
      return "progress update";
    case PayloadKind::activate:
      return "activate";
    case PayloadKind::packed_chunk:
      return "packed chunk";
    case PayloadKind::ask:
      return "ask";
    case PayloadKind::grant:
      return "grant";
    case PayloadKind::commit:
      return "commit";
    case PayloadKind::receipt:
      return "receipt";
    case PayloadKind::parameters:
      return "parameters";
    case PayloadKind::extension:
      return "extension";
    case PayloadKind::state_chunk:
      return "state chunk";
    case PayloadKind::state_received:
      return "state received";
  }
  return "";
}

}  // namespace grapevine
