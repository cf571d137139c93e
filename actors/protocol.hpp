// The messages between actors, and their typed interfaces, all of them; a file that needs those of
// one section includes that section alone. Messages with an inspect() cross processes; the others
// stay inside one. The names that an inspect() gives are part of the wire format: a process of
// another version must decode a refusal.
#pragma once
#include "actors/protocol/models.hpp"
#include "actors/protocol/peer.hpp"
#include "actors/protocol/processes.hpp"
#include "actors/protocol/record.hpp"
#include "actors/protocol/rendezvous.hpp"
#include "actors/protocol/run.hpp"
#include "actors/protocol/supervisor.hpp"
#include "actors/protocol/view.hpp"
