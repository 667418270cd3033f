"""G and H in other backends: rows of the namespace backend, run as they are in a container of podman's and, where they say something about the host, in a virtual machine."""
import contextlib
import shutil

import pytest
import test_g5_bombs as g5
import test_h2_set_ids as h2
import test_h3_no_host_root as h3
import test_h4_own_folders as h4
import test_h5_path_sockets as h5
import test_h6_nested_namespaces as h6
import test_h18_project_files as h18
import test_h27_commands_apart as h27
from expect import CODEX, NATIVE, missing
from guests import every_run

PODMAN = ["--backend", "podman"]
PROJECT = [(h2.test_h2_no_system_call_leaves_a_set_id_file, "codex"), (h2.test_h2_no_system_call_leaves_a_set_id_file, "native"), (h18.test_h18_a_hooks_folder_in_the_project_is_protected,),
           (h18.test_h18_links_are_not_followed_and_their_folder_in_the_project_is_protected,), (h18.test_h18_settings_of_further_tools_are_protected,)]
CONTAINER = [(h2.test_h2_no_program_leaves_a_set_id_file, "moderate"), (h3.test_h3_no_process_of_a_run_is_root_outside, "native"), (h3.test_h3_the_project_stays_its_owners, "codex"),
             (h4.test_h4_a_runtime_folder_below_the_home,), (h5.test_h5_sockets_of_the_host_lead_nowhere, CODEX), (h5.test_h5_sockets_of_the_host_lead_nowhere, NATIVE),
             (h6.test_h6_no_namespace_and_no_odd_socket_by_default, CODEX), (h6.test_h6_no_namespace_and_no_odd_socket_by_default, NATIVE),
             (g5.test_g5_a_fork_bomb_is_limited, ["--pids", "64", *CODEX]), (g5.test_g5_what_is_counted_for_the_user_is_shared_out,), (g5.test_g5_descriptors_are_limited,),
             (g5.test_g5_endless_work_ends_on_time,)]


def name_of(row):
    return "-".join([row[0].__name__[5:], *(" ".join(w) if isinstance(w, list) else w for w in row[1:])])


def needs_podman():
    lacks = [p for p in ("podman", "conmon") if not shutil.which(p)]
    if lacks:
        missing("not installed: " + " ".join(lacks))


@contextlib.contextmanager
def every_run_in_podman(lab):
    needs_podman()
    lab.backend = "podman"
    try:
        yield lab
    finally:
        lab.backend = "ns"


@pytest.mark.parametrize("row", PROJECT + CONTAINER, ids=name_of)
def test_a_container_of_podman_gets_no_more(any_user, row):
    with every_run_in_podman(any_user) as lab:
        row[0](lab, *row[1:])


def test_h27_commands_of_a_container_are_kept_apart(any_boxes):
    needs_podman()
    h27.test_h27_a_command_cannot_look_into_another(any_boxes, PODMAN)


@pytest.mark.xdist_group("vm")
@pytest.mark.parametrize("row", PROJECT, ids=name_of)
def test_a_guest_leaves_no_more_in_the_project(lab, row):
    with lab.acting_as("user"), every_run(lab):
        row[0](lab, *row[1:])
