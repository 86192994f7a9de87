"""Which process runs which file of tests: each takes the next, but stays where it has servers of its own running.

A RabbitMQ or a browser is started once in each process whose tests ask for one, and takes seconds to start.
"""

from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# How many processes start each, as long as there is something else to do for the others.
MOST = {"browser": 2, "rabbitmq": 1}
# Outside the folder of that name.
RABBITMQ = ("test_broker_connections.py", "test_broker_faults.py")


def server_of(file: str) -> str | None:
    path = PurePosixPath(file)
    if path.name in RABBITMQ:
        return "rabbitmq"
    return path.parent.name if path.parent.name in MOST else None


class Spread(LoadFileScheduling):  # type: ignore[misc]  # it comes without types
    def _assign_work_unit(self, node: WorkerController) -> None:
        suiting = (file for file in self.workqueue if self._suits(node, file))
        self.workqueue.move_to_end(next(suiting, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)

    def _suits(self, node: WorkerController, file: str) -> bool:
        server = server_of(file)
        if server is None:
            return True
        started = {one for one, files in self.assigned_work.items() if server in map(server_of, files)}
        return node in started or len(started) < MOST[server]
