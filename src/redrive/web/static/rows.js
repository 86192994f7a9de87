// A list without anything of its own: the keyboard's place in it, and its rows' keys.

import { list } from "./list.js";

list();
