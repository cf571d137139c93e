#include "messages/trace/trace_record.hpp"

namespace grapevine {

const char* name_of(EventKind kind) {
  switch (kind) {
    case EventKind::produced:
      return "produced";
    case EventKind::sent:
      return "sent";
    case EventKind::received:
      return "received";
    case EventKind::applied:
      return "applied";
    case EventKind::committed:
      return "committed";
    case EventKind::dropped:
      return "dropped";
    case EventKind::wait_begin:
      return "wait_begin";
    case EventKind::wait_end:
      return "wait_end";
    case EventKind::step_done:
      return "step_done";
    case EventKind::contributed:
      return "contributed";
    case EventKind::asked:
      return "asked";
    case EventKind::data_wait:
      return "data_wait";
    case EventKind::reduced:
      return "reduced";
    case EventKind::cut:
      return "cut";
    case EventKind::resumed:
      return "resumed";
    case EventKind::view:
      return "view";
  }
  return "";
}

}  // namespace grapevine
