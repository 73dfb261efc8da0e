"""Real applications are used by what the browser tool says of them, and it says nothing false."""

from pathlib import Path

import pytest

from tests.support.applications.tasks import APPLICATIONS, Application, attempt

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("applications")]


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda one: one.name)
async def test_a_task_is_done_and_nothing_is_called_done_that_is_not(
    application: Application, tmp_path: Path
) -> None:
    outcome = await attempt(application, tmp_path)
    assert not outcome.false_successes
    assert outcome.done, outcome.lost
