"""One line of the bench's table."""


class Row:
    def __init__(self, what, goal, text_goal, ours=None, peer=None, peer_name="", unit="", ratio=None, text_ratio=None, note=""):
        self.what, self.goal, self.text_goal, self.ours, self.peer, self.peer_name = what, goal, text_goal, ours, peer, peer_name
        self.unit, self.ratio, self.text_ratio, self.note = unit, ratio, text_ratio, note

    def state(self):
        if self.goal is None:
            return ""
        if self.ratio is None and self.ours is not None:
            return "no peer"
        return "ok" if self.ratio is not None and self.goal(self.ratio) else "MISSED"

    def cells(self):
        ratio = self.text_ratio or ("%.2f" % self.ratio if self.ratio is not None else "-")
        peer = ("%s (%s)" % (show(self.peer, self.unit), self.peer_name)) if self.peer is not None else self.peer_name or "-"
        return [self.what, show(self.ours, self.unit), peer, ratio, self.text_goal, self.state() or "-", self.note]

    def as_json(self):
        return {"what": self.what, "ours": self.ours, "peer": self.peer, "peer_name": self.peer_name, "unit": self.unit, "ratio": self.ratio,
                "goal": self.text_goal, "state": self.state() or None, "note": self.note}


def show(value, unit):
    if value is None:
        return "-"
    if unit == "q/s":
        return "%d q/s" % value
    return ("%.2f %s" if value < 100 else "%.0f %s") % (value, unit)
