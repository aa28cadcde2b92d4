# Flows over one link with RED on ns-2.35, for the speed of the simulators: ns speed.tcl RATE RTT FLOWS BEGIN END
# NewReno with windows that are not a limit; prints the processor time [s] and the packets that the link sent from BEGIN to END.
foreach {rate rtt flows begin end} $argv break
set window 10000
set tcp Newreno
set buffer 400
set seed 1
source [file join [file dirname [info script]] common.tcl]
foreach {name value} {thresh_ 60 maxthresh_ 120 q_weight_ 0.02 linterm_ 2} { Queue/RED set $name $value }

set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
set edge [expr {$rtt < 0.1 ? 0.01 : 0.015}]
$ns simplex-link $r1 $r2 $rate [expr $rtt / 2 - 2 * $edge]s RED
$ns simplex-link $r2 $r1 $rate [expr $rtt / 2 - 2 * $edge]s DropTail
$ns queue-limit $r1 $r2 $buffer
for {set i 0} {$i < $flows} {incr i} {
  set s [$ns node]
  set d [$ns node]
  $ns duplex-link $s $r1 100Mb ${edge}s DropTail
  $ns duplex-link $r2 $d 100Mb ${edge}s DropTail
  session $s $d
}
set monitor [$ns monitor-queue $r1 $r2 ""]

# User time of this process [s], which Linux counts in hundredths.
proc processor_time {} {
  set file [open /proc/self/stat]
  set behind_name [lindex [split [read $file] ")"] end]
  close $file
  return [expr {[lindex $behind_name 11] / 100.0}]
}

$ns at $begin {
  set spent [processor_time]
  set sent [$monitor set pdepartures_]
}
$ns at $end {
  puts "[expr {[processor_time] - $spent}] [expr {[$monitor set pdepartures_] - $sent}]"
  exit 0
}
$ns run
